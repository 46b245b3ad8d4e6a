// The official TypeScript client against our server: what an application does, end to end.
//
// The published suite speaks HTTP and mostly checks one exchange at a time. These tests check that
// the client's own machinery works with us: batching, producers, live sessions, reconnects, EOF.

import {
  DurableStream,
  FetchError,
  IdempotentProducer,
  StaleEpochError,
  stream,
} from "@durable-streams/client"
import { afterEach, describe, expect, test } from "vitest"
import { baseUrl, failure, longPollTimeoutMs } from "./target.mjs"

const JSON_TYPE = "application/json"
const TEXT_TYPE = "text/plain"
const BYTES_TYPE = "application/octet-stream"

const run = Date.now().toString(36)
let created = 0
const freshUrl = (path = "") => `${baseUrl}/v1/stream/client-${run}-${++created}${path}`

const createJson = (options = {}) =>
  DurableStream.create({ url: freshUrl(), contentType: JSON_TYPE, ...options })
const createText = (options = {}) =>
  DurableStream.create({ url: freshUrl(), contentType: TEXT_TYPE, ...options })
const createBytes = (options = {}) =>
  DurableStream.create({ url: freshUrl(), contentType: BYTES_TYPE, ...options })

const appendAll = async (handle, values) => {
  for (const value of values) await handle.append(JSON.stringify(value))
}
const numbers = (from, to) => Array.from({ length: to - from }, (_, i) => ({ n: from + i }))
const bytesOf = (length) => Uint8Array.from({ length }, (_, i) => (i * 31 + (i >> 8)) & 0xff)

const readJson = async (handle, options = {}) =>
  (await stream({ url: handle.url, live: false, ...options })).json()
const readText = async (handle, options = {}) =>
  (await stream({ url: handle.url, live: false, ...options })).text()
const readBytes = async (handle, options = {}) =>
  (await stream({ url: handle.url, live: false, ...options })).body()

/** A fetch that remembers each request. */
const recordingFetch = () => {
  const requests = []
  const recording = async (url, init) => {
    const response = await fetch(url, init)
    requests.push({ url: new URL(url), method: init?.method ?? "GET", status: response.status })
    return response
  }
  return { requests, fetch: recording }
}

const sessions = []
afterEach(() => {
  for (const session of sessions.splice(0)) session.cancel()
})

/** A live session that collects what arrives, and can wait for it. */
const follow = async (handle, { subscribe, ...options }) => {
  const response = await stream({ url: handle.url, ...options })
  sessions.push(response)
  const batches = []
  let changed = () => {}
  response[subscribe]((batch) => {
    batches.push(batch)
    changed()
  })
  const until = (condition) =>
    new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`not seen in time: ${condition}`)), 20_000)
      changed = () => {
        if (!condition()) return
        clearTimeout(timer)
        resolve()
      }
      changed()
    })
  return { response, batches, until }
}

const followJson = async (handle, options) => {
  const reader = await follow(handle, { subscribe: "subscribeJson", ...options })
  const items = () => reader.batches.flatMap((batch) => batch.items)
  return { ...reader, items, untilCount: (n) => reader.until(() => items().length >= n) }
}

const followBytes = async (handle, options) => {
  const reader = await follow(handle, { subscribe: "subscribeBytes", ...options })
  const bytes = () => Buffer.concat(reader.batches.map((batch) => batch.data))
  return { ...reader, bytes, untilLength: (n) => reader.until(() => bytes().length >= n) }
}

const followText = async (handle, options) => {
  const reader = await follow(handle, { subscribe: "subscribeText", ...options })
  const text = () => reader.batches.map((batch) => batch.text).join("")
  return { ...reader, text, untilLength: (n) => reader.until(() => text().length >= n) }
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

describe("create", () => {
  test("a new stream exists, is empty and open", async () => {
    const handle = await createText()
    expect(handle.contentType).toBe(TEXT_TYPE)

    const head = await handle.head()
    expect(head).toMatchObject({ exists: true, contentType: TEXT_TYPE, streamClosed: false })
    expect(head.offset).toBeTruthy()
    expect(await readText(handle)).toBe("")
  })

  test("creating it again with the same configuration is harmless", async () => {
    const handle = await createJson()
    await handle.append(`{"kept":true}`)
    await DurableStream.create({ url: handle.url, contentType: JSON_TYPE })
    expect(await readJson(handle)).toEqual([{ kept: true }])
  })

  test("creating it again with another content type is a conflict", async () => {
    const handle = await createJson()
    const error = await failure(() =>
      DurableStream.create({ url: handle.url, contentType: TEXT_TYPE })
    )
    expect(error.status).toBe(409)
  })

  test("the first content can come with the creation", async () => {
    const text = await createText({ body: "first" })
    expect(await readText(text)).toBe("first")
    const json = await createJson({ body: `[{"n":1},{"n":2}]` })
    expect(await readJson(json)).toEqual(numbers(1, 3))
  })

  test("a stream can be created complete and closed", async () => {
    const handle = await createText({ body: "all of it", closed: true })
    const response = await stream({ url: handle.url, live: "long-poll" })
    expect(await response.text()).toBe("all of it")
    expect(response.streamClosed).toBe(true)
    expect(await handle.head()).toMatchObject({ streamClosed: true })
  })

  test("names may have several segments, spaces and non-ASCII letters", async () => {
    const url = freshUrl("/room%20one/\u6d41\u308c/%F0%9F%8C%8A")
    const handle = await DurableStream.create({ url, contentType: TEXT_TYPE, body: "here" })
    expect(await readText(handle)).toBe("here")
    expect(await DurableStream.head({ url: `${url}x` })).toEqual({ exists: false })
  })

  test("a stream with a lifetime goes away", async () => {
    const handle = await createText({ ttlSeconds: 1, body: "brief" })
    expect(await handle.head()).toMatchObject({ exists: true })
    await expect
      .poll(() => handle.head(), { timeout: 10_000, interval: 200 })
      .toEqual({ exists: false })
  })
})

describe("append", () => {
  test("text comes back in order, byte for byte", async () => {
    const handle = await createText()
    const parts = ["one ", "zwei\n", "\u4e09 ", "\ud83c\udf0a", "\r\n", " five"]
    for (const part of parts) await handle.append(part)
    expect(await readText(handle)).toBe(parts.join(""))
  })

  test("every kind of JSON value is one message", async () => {
    const handle = await createJson()
    const values = [
      { a: { b: [1, 2] } },
      [1, [2, 3]],
      [],
      {},
      "text \u2028 \ud83c\udf0a",
      0,
      -1.5e300,
      true,
      false,
      null,
    ]
    await appendAll(handle, values)
    expect(await readJson(handle)).toEqual(values)
  })

  test("appends made while one is in flight share a request", async () => {
    const recorder = recordingFetch()
    const handle = await createJson({ fetch: recorder.fetch })
    await Promise.all(numbers(0, 100).map((value) => handle.append(JSON.stringify(value))))

    expect(await readJson(handle)).toEqual(numbers(0, 100))
    const posts = recorder.requests.filter((request) => request.method === "POST")
    expect(posts.length).toBeLessThan(10)
  })

  test("without batching every append is its own request", async () => {
    const recorder = recordingFetch()
    const handle = await createText({ fetch: recorder.fetch, batching: false })
    for (const part of ["a", "b", "c"]) await handle.append(part)
    expect(await readText(handle)).toBe("abc")
    expect(recorder.requests.filter((request) => request.method === "POST")).toHaveLength(3)
  })

  test("text and bytes that overlap in time are joined as bytes", async () => {
    const handle = await createBytes()
    await Promise.all([
      handle.append("x"),
      handle.append("\u00e9"),
      handle.append(Uint8Array.of(0, 255)),
    ])
    expect([...(await readBytes(handle))]).toEqual([0x78, 0xc3, 0xa9, 0x00, 0xff])
  })

  test("a large binary body survives unchanged", async () => {
    const handle = await createBytes()
    const body = bytesOf(3 * 1024 * 1024 + 17)
    await handle.append(body)
    expect(Buffer.compare(await readBytes(handle), body)).toBe(0)
  })

  test("a streamed body of unknown length is one append", async () => {
    const handle = await createText()
    async function* source() {
      for (let i = 0; i < 20; i++) {
        yield `line ${i}\n`
        if (i % 5 === 0) await pause(5)
      }
    }
    await handle.appendStream(source())
    expect(await readText(handle)).toBe(
      Array.from({ length: 20 }, (_, i) => `line ${i}\n`).join("")
    )
  })

  test("a writer sequence that does not increase is refused", async () => {
    const handle = await createText()
    await handle.append("a", { seq: "0002" })
    expect((await failure(() => handle.append("b", { seq: "0002" }))).status).toBe(409)
    expect((await failure(() => handle.append("c", { seq: "0001" }))).status).toBe(409)
    await handle.append("d", { seq: "0003" })
    expect(await readText(handle)).toBe("ad")
  })
})

describe("idempotent producer", () => {
  test("pipelined batches arrive once and in order", async () => {
    const handle = await createJson()
    const errors = []
    const producer = new IdempotentProducer(handle, "writer", {
      lingerMs: 0,
      maxBatchBytes: 64,
      maxInFlight: 5,
      onError: (error) => errors.push(error),
    })
    for (const value of numbers(0, 500)) producer.append(JSON.stringify(value))
    await producer.flush()

    expect(errors).toEqual([])
    expect(await readJson(handle)).toEqual(numbers(0, 500))
    expect(producer.lastSuccessfulOffset).toBe((await handle.head()).offset)
    await producer.detach()
    expect((await handle.head()).streamClosed).toBe(false)
  })

  test("a batch that is delivered twice is stored once", async () => {
    const statuses = []
    const twice = async (url, init) => {
      const first = await fetch(url, init)
      if (init?.method === "POST") statuses.push(first.status, (await fetch(url, init)).status)
      return first
    }
    const handle = await createJson()
    const producer = new IdempotentProducer(handle, "writer", { fetch: twice, maxInFlight: 1 })
    for (const value of numbers(0, 3)) {
      producer.append(JSON.stringify(value))
      await producer.flush()
    }
    expect(statuses).toEqual([200, 204, 200, 204, 200, 204])
    expect(await readJson(handle)).toEqual(numbers(0, 3))
  })

  test("an answer that got lost can be asked for again", async () => {
    const handle = await createText()
    const write = (seq, body) =>
      fetch(handle.url, {
        method: "POST",
        headers: {
          "content-type": TEXT_TYPE,
          "producer-id": "writer",
          "producer-epoch": "0",
          "producer-seq": String(seq),
        },
        body,
      })
    await write(0, "a")
    await write(1, "b")
    const repeated = await write(0, "a")
    expect(repeated.status).toBe(204)
    expect(repeated.headers.get("producer-seq")).toBe("1")
    expect(await readText(handle)).toBe("ab")
  })

  test("a newer epoch fences the older producer", async () => {
    const handle = await createText()
    const errors = []
    const older = new IdempotentProducer(handle, "writer", {
      epoch: 0,
      onError: (e) => errors.push(e),
    })
    older.append("old ")
    await older.flush()
    const newer = new IdempotentProducer(handle, "writer", { epoch: 3 })
    newer.append("new ")
    await newer.flush()

    older.append("zombie ")
    await older.flush()
    expect(errors).toHaveLength(1)
    expect(errors[0]).toBeInstanceOf(StaleEpochError)
    expect(errors[0].currentEpoch).toBe(3)
    expect(await readText(handle)).toBe("old new ")
  })

  test("auto-claim takes the next epoch over", async () => {
    const handle = await createText()
    const first = new IdempotentProducer(handle, "writer", { epoch: 4 })
    first.append("a")
    await first.flush()
    const second = new IdempotentProducer(handle, "writer", { autoClaim: true })
    second.append("b")
    await second.flush()
    second.append("c")
    await second.flush()
    expect(second.epoch).toBe(5)
    expect(await readText(handle)).toBe("abc")
  })

  test("a restarted producer goes on in a new epoch", async () => {
    const handle = await createText()
    const producer = new IdempotentProducer(handle, "writer")
    producer.append("a")
    await producer.restart()
    producer.append("b")
    await producer.flush()
    expect(producer.epoch).toBe(1)
    expect(await readText(handle)).toBe("ab")
  })

  test("closing with a last message is atomic and can be repeated", async () => {
    const handle = await createJson()
    const twice = async (url, init) => {
      await fetch(url, init)
      return fetch(url, init)
    }
    const producer = new IdempotentProducer(handle, "writer", { fetch: twice, maxInFlight: 1 })
    producer.append(`{"n":0}`)
    const { finalOffset } = await producer.close(`{"n":1}`)

    expect(await producer.close()).toEqual({ finalOffset })
    expect(await handle.head()).toMatchObject({ streamClosed: true, offset: finalOffset })
    expect(await readJson(handle)).toEqual(numbers(0, 2))
  })

  test("a pipe into the stream ends in EOF", async () => {
    const handle = await createText()
    const source = new ReadableStream({
      start(controller) {
        for (const part of ["a", "b", "c"]) controller.enqueue(part)
        controller.close()
      },
    })
    await source.pipeTo(handle.writable({ lingerMs: 0 }))
    expect(await readText(handle)).toBe("abc")
    expect((await handle.head()).streamClosed).toBe(true)
  })
})

describe("read", () => {
  test("catch-up ends up to date, at the tail", async () => {
    const handle = await createJson()
    await appendAll(handle, numbers(0, 5))
    const response = await stream({ url: handle.url, live: false })
    expect(await response.json()).toEqual(numbers(0, 5))
    expect(response.upToDate).toBe(true)
    expect(response.streamClosed).toBe(false)
    expect(response.offset).toBe((await handle.head()).offset)
  })

  test("a long stream is read in as many requests as it takes", async () => {
    const handle = await createJson()
    const producer = new IdempotentProducer(handle, "writer", { maxBatchBytes: 256 * 1024 })
    const filler = "x".repeat(2000)
    for (const { n } of numbers(0, 3000)) producer.append(JSON.stringify({ n, filler }))
    await producer.flush()

    const recorder = recordingFetch()
    const seen = []
    // With live: false the client makes one request; the caller asks again until it is up to date.
    let offset = "-1"
    let upToDate = false
    while (!upToDate) {
      const response = await stream({ url: handle.url, offset, live: false, fetch: recorder.fetch })
      for (const item of await response.json()) seen.push(item.n)
      ;({ offset, upToDate } = response)
    }
    expect(seen).toEqual(numbers(0, 3000).map(({ n }) => n))
    expect(recorder.requests.length).toBeGreaterThan(1)
    expect(recorder.requests.every((request) => request.status === 200)).toBe(true)
  })

  test("a refreshed page resumes where it was", async () => {
    const handle = await createJson()
    await appendAll(handle, numbers(0, 3))
    const before = await stream({ url: handle.url, live: false })
    expect(await before.json()).toEqual(numbers(0, 3))
    const saved = JSON.parse(JSON.stringify(before.offset))

    await appendAll(handle, numbers(3, 6))
    const after = await stream({ url: handle.url, live: false, offset: saved })
    expect(after.startOffset).toBe(saved)
    expect(await after.json()).toEqual(numbers(3, 6))
    expect(await readJson(handle, { offset: after.offset })).toEqual([])
  })

  test("each offset a reader was given resumes exactly there", async () => {
    const handle = await createText()
    const offsets = [(await handle.head()).offset]
    for (const part of ["a", "bb", "ccc", "dddd"]) {
      await handle.append(part)
      offsets.push((await handle.head()).offset)
    }
    const rests = []
    for (const offset of offsets) rests.push(await readText(handle, { offset }))
    expect(rests).toEqual(["abbcccdddd", "bbcccdddd", "cccdddd", "dddd", ""])
    expect([...offsets].sort()).toEqual(offsets)
  })

  test("a session that starts now skips what was there", async () => {
    const handle = await createJson({ body: `[{"old":true}]` })
    const reader = await followJson(handle, { offset: "now", live: "long-poll" })
    await handle.append(`{"new":true}`)
    await reader.untilCount(1)
    expect(reader.items()).toEqual([{ new: true }])
  })
})

describe.each(["long-poll", "sse"])("follow by %s", (live) => {
  test("history first, then what is appended, in order and once", async () => {
    const handle = await createJson()
    await appendAll(handle, numbers(0, 3))
    const recorder = recordingFetch()
    const reader = await followJson(handle, { live, fetch: recorder.fetch })
    await reader.untilCount(3)
    await appendAll(handle, numbers(3, 20))
    await reader.untilCount(20)

    expect(reader.items()).toEqual(numbers(0, 20))
    await expect.poll(() => reader.response.offset).toBe((await handle.head()).offset)
    expect(recorder.requests.some(({ url }) => url.searchParams.get("live") === live)).toBe(true)
  })

  test("silence longer than the server's timeout loses nothing", async () => {
    const handle = await createJson()
    await handle.append(`{"n":0}`)
    const reader = await followJson(handle, { live })
    await reader.untilCount(1)
    await pause(longPollTimeoutMs * 2.5)
    await handle.append(`{"n":1}`)
    await reader.untilCount(2)
    await pause(longPollTimeoutMs * 1.5)
    await handle.append(`{"n":2}`)
    await reader.untilCount(3)
    expect(reader.items()).toEqual(numbers(0, 3))
  })

  test("text arrives as it was written", async () => {
    const handle = await createText()
    const reader = await followText(handle, { live })
    const parts = [
      "one\n",
      "\n\ntwo\nthree",
      "event: data\ndata:{}\n\n",
      "\u00fc\ud83c\udf0a",
      "tail\n",
    ]
    for (const part of parts) await handle.append(part)
    await reader.untilLength(parts.join("").length)
    expect(reader.text()).toBe(parts.join(""))
  })

  test("every byte value arrives as it was written", async () => {
    const handle = await createBytes()
    const recorder = recordingFetch()
    const reader = await followBytes(handle, { live, fetch: recorder.fetch })
    const all = bytesOf(256 * 3 + 1)
    for (let at = 0; at < all.length; at += 100) await handle.append(all.slice(at, at + 100))
    await reader.untilLength(all.length)
    expect(Buffer.compare(reader.bytes(), all)).toBe(0)
    expect(recorder.requests.some(({ url }) => url.searchParams.get("live") === live)).toBe(true)
  })

  test("a large message arrives whole", async () => {
    const handle = await createBytes()
    const reader = await followBytes(handle, { live })
    const body = bytesOf(2 * 1024 * 1024 + 3)
    await handle.append(body)
    await reader.untilLength(body.length)
    expect(Buffer.compare(reader.bytes(), body)).toBe(0)
  })

  test("a reader that went away resumes live from its offset", async () => {
    const handle = await createJson()
    const first = await followJson(handle, { live })
    await appendAll(handle, numbers(0, 4))
    await first.untilCount(4)
    const saved = first.batches.at(-1).offset
    first.response.cancel()

    await appendAll(handle, numbers(4, 7))
    const second = await followJson(handle, { live, offset: saved })
    await appendAll(handle, numbers(7, 9))
    await second.untilCount(5)
    expect(second.items()).toEqual(numbers(4, 9))
  })

  test("several readers all see the same", async () => {
    const handle = await createJson()
    const readers = await Promise.all(Array.from({ length: 5 }, () => followJson(handle, { live })))
    await appendAll(handle, numbers(0, 10))
    for (const reader of readers) {
      await reader.untilCount(10)
      expect(reader.items()).toEqual(numbers(0, 10))
    }
  })

  test("closing the stream ends the session after the last message", async () => {
    const handle = await createJson()
    const reader = await followJson(handle, { live })
    await handle.append(`{"n":0}`)
    await reader.untilCount(1)
    const { finalOffset } = await handle.close({ body: `{"n":1}` })

    await reader.response.closed
    await reader.untilCount(2)
    expect(reader.items()).toEqual(numbers(0, 2))
    expect(reader.batches.at(-1)).toMatchObject({ streamClosed: true, offset: finalOffset })
    expect(reader.response.streamClosed).toBe(true)
  })

  test("a waiting reader learns of a close without a message", async () => {
    const handle = await createBytes({ body: Uint8Array.of(1, 2, 3) })
    const reader = await followBytes(handle, { live })
    await reader.untilLength(3)
    await handle.close()
    await reader.response.closed
    await expect.poll(() => reader.response.streamClosed).toBe(true)
    expect([...reader.bytes()]).toEqual([1, 2, 3])
  })

  test("a session on a closed stream reads it all and ends", async () => {
    const handle = await createJson({ body: `[{"n":0},{"n":1}]`, closed: true })
    const reader = await followJson(handle, { live })
    await reader.response.closed
    await reader.untilCount(2)
    expect(reader.items()).toEqual(numbers(0, 2))
  })
})

test("the client's own choice of live mode follows a stream to its end", async () => {
  const handle = await createJson()
  await handle.append(`{"n":0}`)
  const reader = await followJson(handle, { live: true })
  await reader.untilCount(1)
  await handle.append(`{"n":1}`)
  await reader.untilCount(2)
  await handle.close()
  await reader.response.closed
  expect(reader.items()).toEqual(numbers(0, 2))
})

// An SSE parser drops one space after "data:", so a server must write one more in front of it.
test("SSE keeps the spaces a line begins with", async () => {
  const handle = await createText()
  const reader = await followText(handle, { live: "sse" })
  const code = "def f():\n    return 1\n \n  \n"
  await handle.append(code)
  await handle.append(" next")
  await reader.until(() => reader.text().endsWith("next"))
  expect(reader.text()).toBe(`${code} next`)
})

test("SSE carries bytes as base64 and text as it is", async () => {
  const bytes = await createBytes({ body: Uint8Array.of(0, 255), closed: true })
  const encoded = await fetch(`${bytes.url}?offset=-1&live=sse`)
  expect(encoded.headers.get("stream-sse-data-encoding")).toBe("base64")
  expect(await encoded.text()).toContain("data:AP8=")

  const text = await createText({ body: "plain", closed: true })
  const plain = await fetch(`${text.url}?offset=-1&live=sse`)
  expect(plain.headers.get("stream-sse-data-encoding")).toBeNull()
  expect(await plain.text()).toContain("data:plain")
})

describe("close", () => {
  test("a closed stream keeps its data and its final offset", async () => {
    const handle = await createText({ body: "kept" })
    const { finalOffset } = await handle.close()
    expect(await handle.close()).toEqual({ finalOffset })
    expect(await handle.head()).toMatchObject({ streamClosed: true, offset: finalOffset })

    const response = await stream({ url: handle.url, live: false })
    expect(await response.text()).toBe("kept")
    expect(response.streamClosed).toBe(true)
  })

  test("an append to a closed stream is refused and says so", async () => {
    const handle = await createText({ body: "kept" })
    const { finalOffset } = await handle.close()
    for (const write of [() => handle.append("more"), () => handle.close({ body: "more" })]) {
      const error = await failure(write)
      expect(error.status).toBe(409)
      expect(error.headers["stream-closed"]).toBe("true")
      expect(error.headers["stream-next-offset"]).toBe(finalOffset)
    }
    expect(await readText(handle)).toBe("kept")
  })

  test("a producer cannot write to a stream that someone else closed", async () => {
    const handle = await createText()
    const errors = []
    const producer = new IdempotentProducer(handle, "writer", { onError: (e) => errors.push(e) })
    producer.append("a")
    await producer.flush()
    await handle.close()
    const response = await fetch(handle.url, {
      method: "POST",
      headers: {
        "content-type": TEXT_TYPE,
        "producer-id": "writer",
        "producer-epoch": "0",
        "producer-seq": "1",
      },
      body: "b",
    })
    expect(response.status).toBe(409)
    expect(response.headers.get("stream-closed")).toBe("true")
    expect(errors).toEqual([])
    expect(await readText(handle)).toBe("a")
  })
})

describe("delete", () => {
  test("a deleted stream is gone", async () => {
    const handle = await createText({ body: "soon gone" })
    await handle.delete()
    expect(await handle.head()).toEqual({ exists: false })
    expect((await failure(() => readText(handle))).status).toBe(404)
    expect((await failure(() => handle.delete())).status).toBe(404)
  })

  test("the name can be used again and nothing of the old stream shows", async () => {
    const handle = await createText({ body: "old" })
    const producer = new IdempotentProducer(handle, "writer", { epoch: 9 })
    producer.append(" data")
    await producer.flush()
    await handle.delete()

    const again = await DurableStream.create({ url: handle.url, contentType: JSON_TYPE })
    expect(await readJson(again)).toEqual([])
    const fresh = new IdempotentProducer(again, "writer", { epoch: 0 })
    fresh.append(`{"n":0}`)
    await fresh.flush()
    expect(await readJson(again)).toEqual(numbers(0, 1))
  })
})

describe("errors", () => {
  const missing = () => new DurableStream({ url: freshUrl(), contentType: TEXT_TYPE })

  test("a stream that does not exist", async () => {
    expect(await missing().head()).toEqual({ exists: false })
    for (const live of [false, "long-poll", "sse"]) {
      const error = await failure(() => stream({ url: freshUrl(), live }))
      expect(error).toBeInstanceOf(FetchError)
      expect(error.status).toBe(404)
    }
    expect((await failure(() => missing().append("x"))).status).toBe(404)
    expect((await failure(() => missing().close())).status).toBe(404)
    expect((await failure(() => missing().delete())).status).toBe(404)
  })

  test("an append of another content type", async () => {
    const handle = await createText()
    expect((await failure(() => handle.append("1", { contentType: JSON_TYPE }))).status).toBe(409)
    expect(await readText(handle)).toBe("")
  })

  test("broken JSON is refused whole", async () => {
    const handle = await createJson()
    expect((await failure(() => handle.append(`{"n":`))).status).toBe(400)
    expect((await failure(() => handle.append(`1],[2`))).status).toBe(400)
    expect(await readJson(handle)).toEqual([])
  })

  test("an offset that is none", async () => {
    const handle = await createText({ body: "x" })
    for (const offset of ["nonsense", "0,0", "../etc"]) {
      expect((await failure(() => stream({ url: handle.url, offset, live: false }))).status).toBe(
        400
      )
    }
  })

  test("an error carries a JSON body with a code and a message", async () => {
    const error = await failure(() => stream({ url: freshUrl(), live: false }))
    expect(error.json).toMatchObject({
      error: { code: expect.any(String), message: expect.any(String) },
    })
  })

  test("a cancelled session stops asking", async () => {
    const handle = await createJson()
    const recorder = recordingFetch()
    const reader = await followJson(handle, { live: "long-poll", fetch: recorder.fetch })
    await handle.append(`{"n":0}`)
    await reader.untilCount(1)
    reader.response.cancel()
    await reader.response.closed
    const asked = recorder.requests.length
    await handle.append(`{"n":1}`)
    await pause(longPollTimeoutMs * 2)
    expect(recorder.requests.length).toBeLessThanOrEqual(asked + 1)
    expect(reader.items()).toEqual(numbers(0, 1))
  })
})
