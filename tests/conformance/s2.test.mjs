// The official TypeScript SDK of S2 against our server: every public operation, and its errors.
//
// Sessions are shown over both of its transports: HTTP/2 with S2S frames, and fetch with SSE.

import {
  AppendInput,
  AppendRecord,
  BatchSubmitTicket,
  BatchTransform,
  EncryptionKey,
  FencingTokenMismatchError,
  IndexedAppendAck,
  Producer,
  RangeNotSatisfiableError,
  RecordSubmitTicket,
  S2,
  S2AccessTokens,
  S2Basin,
  S2Basins,
  S2Locations,
  S2Metrics,
  S2Stream,
  S2Streams,
  SeqNumMismatchError,
  paginate,
  randomToken,
} from "@s2-dev/streamstore"
import zlib from "node:zlib"
import { serialization } from "@s2-dev/streamstore-patterns"
import { describe, expect, test } from "vitest"
import {
  TRANSPORTS,
  batch,
  bodiesOf,
  bytesOf,
  collect,
  connect,
  freshBasin,
  freshName,
  freshStream,
  fromStart,
  numbered,
  readAll,
  refusal,
  text,
} from "./s2-target.mjs"
import { failure } from "./target.mjs"

const HOUR_MS = 3_600_000
// Node has zstd since 22.15.
const COMPRESSIONS = zlib.zstdCompressSync ? ["gzip", "zstd"] : ["gzip"]
const CLASSES = [
  S2,
  S2AccessTokens,
  S2Basin,
  S2Basins,
  S2Locations,
  S2Metrics,
  S2Stream,
  S2Streams,
  Producer,
  RecordSubmitTicket,
  IndexedAppendAck,
  BatchSubmitTicket,
]

/** Names the public methods that were called, so that the last test can see what is missing. */
const called = new Set()
const publicMethods = CLASSES.flatMap((type) =>
  Object.getOwnPropertyNames(type.prototype)
    .filter((name) => name !== "constructor" && typeof type.prototype[name] === "function")
    .map((name) => [type, name])
)
const INTERNAL = new Set([
  "S2Stream.getTransport",
  "S2Stream.ensureOpen",
  "S2Stream.withDataPlaneHeaders",
  "Producer.runPump",
  "Producer.submitInternal",
  "Producer.enqueueOperation",
  "Producer.fail",
  "Producer.closeInternal",
])
for (const [type, name] of publicMethods) {
  const original = type.prototype[name]
  type.prototype[name] = function (...args) {
    called.add(`${type.name}.${name}`)
    return original.apply(this, args)
  }
}

const FULL_STREAM_CONFIG = {
  storageClass: "standard",
  retentionPolicy: { ageSecs: 86_400 },
  timestamping: { mode: "client-require", uncapped: true },
  deleteOnEmpty: { minAgeSecs: 3600 },
}

describe("basins", () => {
  test("keep the configuration they were created with", async () => {
    const s2 = connect()
    const basin = freshName()
    const config = {
      createStreamOnAppend: true,
      createStreamOnRead: true,
      streamCipher: "aes-256-gcm",
      defaultStreamConfig: FULL_STREAM_CONFIG,
    }
    const info = await s2.basins.create({ basin, config })
    expect(info.name).toBe(basin)
    expect(info.createdAt).toBeInstanceOf(Date)
    expect(info.deletedAt ?? null).toBeNull()
    expect(await s2.basins.getConfig({ basin })).toMatchObject(config)
  })

  test("have names that are taken once", async () => {
    const s2 = connect()
    const basin = freshName()
    await s2.basins.create({ basin })
    await refusal(() => s2.basins.create({ basin }), 409, "resource_already_exists")
  })

  test("are ensured: created, left alone, changed", async () => {
    const s2 = connect()
    const basin = freshName()
    const results = []
    for (const config of [
      { createStreamOnAppend: true },
      { createStreamOnAppend: true },
      { createStreamOnRead: true },
    ]) {
      const ensured = await s2.basins.ensure({ basin, config })
      expect(ensured.basin.name).toBe(basin)
      results.push(ensured.result)
    }
    expect(results).toEqual(["created", "noop", "updated"])
    const config = await s2.basins.getConfig({ basin })
    expect([config.createStreamOnAppend, config.createStreamOnRead]).toEqual([false, true])
  })

  test("are reconfigured: absent is kept, null goes back, a value is set", async () => {
    const s2 = connect()
    const basin = freshName()
    const config = { createStreamOnAppend: true, defaultStreamConfig: FULL_STREAM_CONFIG }
    await s2.basins.create({ basin, config })
    let changed = await s2.basins.reconfigure({ basin, createStreamOnRead: true })
    expect(changed).toMatchObject({ ...config, createStreamOnRead: true })
    changed = await s2.basins.reconfigure({
      basin,
      createStreamOnAppend: null,
      defaultStreamConfig: { storageClass: null, retentionPolicy: { infinite: {} } },
    })
    expect(changed.createStreamOnAppend).toBe(false)
    expect(changed.defaultStreamConfig.retentionPolicy).toEqual({ infinite: {} })
    expect(changed.defaultStreamConfig.storageClass ?? "express").toBe("express")
    expect(changed.defaultStreamConfig.deleteOnEmpty).toEqual({ minAgeSecs: 3600 })
    expect(await s2.basins.getConfig({ basin })).toEqual(changed)
  })

  test("are listed in order and in pages", async () => {
    const s2 = connect()
    const prefix = freshName("page")
    const names = [0, 1, 2].map((n) => `${prefix}-${n}`)
    for (const basin of names.toReversed()) await s2.basins.create({ basin })
    const first = await s2.basins.list({ prefix, limit: 2 })
    expect([first.basins.map((info) => info.name), first.hasMore]).toEqual([names.slice(0, 2), true])
    const rest = await s2.basins.list({ prefix, startAfter: names[1] })
    expect([rest.basins.map((info) => info.name), rest.hasMore]).toEqual([names.slice(2), false])
    const all = await collect(s2.basins.listAll({ prefix, limit: 1 }))
    expect(all.map((info) => info.name)).toEqual(names)
  })

  test("are deleted, and then cannot be used", async () => {
    const s2 = connect()
    const basin = freshName()
    await s2.basins.create({ basin })
    await s2.basins.delete({ basin })
    const listed = await collect(s2.basins.listAll({ prefix: basin }))
    expect(listed.filter((info) => !info.deletedAt)).toEqual([])
    const error = await failure(() => s2.basin(basin).streams.create({ stream: "stream" }))
    expect(["basin_deletion_pending", "basin_not_found"]).toContain(error.code)
    await refusal(() => s2.basins.delete({ basin: "no-such-basin" }), 404, "basin_not_found")
    await refusal(() => s2.basins.getConfig({ basin: "no-such-basin" }), 404, "basin_not_found")
  })
})

describe("the account", () => {
  test("has locations, one of them the default", async () => {
    const s2 = connect()
    const locations = await s2.locations.list()
    const names = locations.map((location) => location.name)
    expect(names).toContain((await s2.locations.getDefault()).name)
    expect((await s2.locations.setDefault({ location: names[0] })).name).toBe(names[0])
    const info = await s2.basins.create({ basin: freshName(), location: names[0] })
    expect(info.location).toBe(names[0])
  })

  test("issues, lists and revokes access tokens", async () => {
    const s2 = connect()
    const prefix = freshName("token")
    const ids = [0, 1, 2].map((n) => `${prefix}-${n}`)
    const expiresAt = new Date(Math.floor(Date.now() / 1000) * 1000 + HOUR_MS)
    const scope = {
      basins: { prefix: "basin-" },
      streams: { prefix: "tenant/" },
      opGroups: { stream: { read: true, write: true } },
      ops: ["list-streams"],
    }
    for (const id of ids.toReversed()) {
      const issued = await s2.accessTokens.issue({ id, scope, expiresAt, autoPrefixStreams: true })
      expect(issued.accessToken).not.toBe("")
    }
    const first = await s2.accessTokens.list({ prefix, limit: 2 })
    expect([first.accessTokens.map((info) => info.id), first.hasMore]).toEqual([
      ids.slice(0, 2),
      true,
    ])
    expect(first.accessTokens[0]).toMatchObject({ autoPrefixStreams: true, expiresAt })
    expect(first.accessTokens[0].scope).toMatchObject({ streams: { prefix: "tenant/" } })
    const all = await collect(s2.accessTokens.listAll({ prefix, limit: 1 }))
    expect(all.map((info) => info.id)).toEqual(ids)
    await refusal(() => s2.accessTokens.issue({ id: ids[0], scope }), 409, "resource_already_exists")
    await s2.accessTokens.revoke({ id: ids[0] })
    await refusal(() => s2.accessTokens.revoke({ id: ids[0] }), 404, "access_token_not_found")
  })

  test("has metrics, and so do basins and streams", async () => {
    const s2 = connect()
    const basin = freshName()
    await s2.basins.create({ basin, config: { createStreamOnAppend: true } })
    await s2.basin(basin).stream("stream").append(batch(["a", "b"]))
    const period = { start: new Date(Date.now() - HOUR_MS), end: new Date(Date.now() + 60_000) }
    const found = [
      await s2.metrics.account({ set: "active-basins", ...period }),
      await s2.metrics.account({ set: "account-ops", interval: "hour", ...period }),
    ]
    for (const set of [
      "storage",
      "append-ops",
      "read-ops",
      "read-throughput",
      "append-throughput",
      "basin-ops",
    ]) {
      found.push(await s2.metrics.basin({ basin, set, ...period }))
      const byMinute = { basin, set, interval: "minute", ...period }
      if (set !== "storage") found.push(await s2.metrics.basin(byMinute))
    }
    found.push(await s2.metrics.stream({ basin, stream: "stream", set: "storage", ...period }))
    for (const { values } of found) expect(values).toBeInstanceOf(Array)
  })

  test.each([
    ["no start", { end: 0 }],
    ["no end", { start: -HOUR_MS }],
    ["an end before its start", { start: 0, end: -HOUR_MS }],
    ["an end in the future", { start: -HOUR_MS, end: HOUR_MS }],
    ["more than a month", { start: -40 * 24 * HOUR_MS, end: 0 }],
  ])("has no metrics of a period with %s", async (_, period) => {
    const fromNow = Object.entries(period).map(([name, ms]) => [name, new Date(Date.now() + ms)])
    const query = { set: "active-basins", ...Object.fromEntries(fromNow) }
    await refusal(() => connect().metrics.account(query), 422, "invalid")
  })
})

describe("streams", () => {
  test("keep the configuration they were created with", async () => {
    const basin = await freshBasin()
    const info = await basin.streams.create({ stream: "stream", config: FULL_STREAM_CONFIG })
    expect(info).toMatchObject({ name: "stream", createdAt: expect.any(Date) })
    expect(await basin.streams.getConfig({ stream: "stream" })).toEqual(FULL_STREAM_CONFIG)
  })

  test("have defaults for what was not said", async () => {
    const basin = await freshBasin()
    await basin.streams.create({ stream: "stream" })
    expect(await basin.streams.getConfig({ stream: "stream" })).toMatchObject({
      storageClass: "express",
      retentionPolicy: { ageSecs: 604_800 },
      timestamping: { mode: "client-prefer", uncapped: false },
    })
  })

  test.each(["a/b", "with space", "%2F", "?x#y", "ünï", "日本"])("may be called %s", async (stream) => {
    const basin = await freshBasin()
    expect((await basin.streams.create({ stream })).name).toBe(stream)
    await basin.stream(stream).append(batch(["body"]))
    expect(bodiesOf((await basin.stream(stream).read(fromStart())).records)).toEqual(["body"])
    expect((await basin.streams.list()).streams.map((info) => info.name)).toEqual([stream])
  })

  test("are ensured: created, left alone, changed", async () => {
    const basin = await freshBasin()
    const results = []
    for (const ageSecs of [60, 60, 120]) {
      const config = { retentionPolicy: { ageSecs } }
      results.push((await basin.streams.ensure({ stream: "stream", config })).result)
    }
    expect(results).toEqual(["created", "noop", "updated"])
  })

  test("are reconfigured: absent is kept, null goes back, a value is set", async () => {
    const basin = await freshBasin({ defaultStreamConfig: { retentionPolicy: { infinite: {} } } })
    await basin.streams.create({ stream: "stream", config: FULL_STREAM_CONFIG })
    let changed = await basin.streams.reconfigure({ stream: "stream", storageClass: "express" })
    expect(changed).toEqual({ ...FULL_STREAM_CONFIG, storageClass: "express" })
    changed = await basin.streams.reconfigure({
      stream: "stream",
      retentionPolicy: null,
      timestamping: { uncapped: null },
      deleteOnEmpty: { minAgeSecs: 0 },
    })
    expect(changed.retentionPolicy, "the default of the basin").toEqual({ infinite: {} })
    expect(changed.timestamping).toEqual({ mode: "client-require", uncapped: false })
    expect(changed.deleteOnEmpty?.minAgeSecs ?? 0).toBe(0)
    await refusal(
      () => basin.streams.reconfigure({ stream: "stream", retentionPolicy: { ageSecs: 0 } }),
      422,
      "invalid"
    )
  })

  test("are listed in order and in pages", async () => {
    const basin = await freshBasin()
    const names = ["b", "p/0", "p/1", "p/2"]
    for (const stream of names.toReversed()) await basin.streams.create({ stream })
    const first = await basin.streams.list({ prefix: "p/", limit: 2 })
    expect([first.streams.map((info) => info.name), first.hasMore]).toEqual([["p/0", "p/1"], true])
    const rest = await basin.streams.list({ prefix: "p/", startAfter: "p/1" })
    expect([rest.streams.map((info) => info.name), rest.hasMore]).toEqual([["p/2"], false])
    const all = await collect(basin.streams.listAll({ limit: 1 }))
    expect(all.map((info) => info.name)).toEqual(names)
    const paged = paginate(
      async (args) => {
        const page = await basin.streams.list({ limit: 3, ...args })
        return { items: page.streams, hasMore: page.hasMore }
      },
      {},
      (info) => info.name
    )
    expect((await collect(paged)).map((info) => info.name)).toEqual(names)
  })

  test("are deleted, and then cannot be used", async () => {
    const basin = await freshBasin()
    await basin.streams.create({ stream: "stream" })
    await basin.streams.delete({ stream: "stream" })
    const error = await failure(() => basin.stream("stream").checkTail())
    expect(["stream_not_found", "stream_deletion_pending"]).toContain(error.code)
    await refusal(() => basin.streams.delete({ stream: "missing" }), 404, "stream_not_found")
    await refusal(() => basin.streams.getConfig({ stream: "missing" }), 404, "stream_not_found")
    await refusal(() => basin.stream("missing").checkTail(), 404, "stream_not_found")
  })
})

describe("appending and reading, one call each", () => {
  test("says where the records went", async () => {
    const stream = await freshStream()
    expect((await stream.checkTail()).tail).toEqual({ seqNum: 0, timestamp: new Date(0) })
    const ack = await stream.append(batch(["a", "b"]))
    expect([ack.start.seqNum, ack.end.seqNum, ack.tail.seqNum]).toEqual([0, 2, 2])
    expect((await stream.checkTail()).tail).toEqual(ack.tail)
  })

  test("brings text and bytes back as they were", async () => {
    const stream = await freshStream()
    const timestamp = new Date(Date.now() - 10_000)
    const body = bytesOf(5000)
    await stream.append(AppendInput.create([text("日本", { headers: [["name", "value"]], timestamp })]))
    await stream.append(
      AppendInput.create([
        AppendRecord.bytes({ body, headers: [[bytesOf(4), new Uint8Array()]], timestamp }),
        AppendRecord.bytes({ body: new Uint8Array() }),
      ])
    )
    const [first] = (await stream.read(fromStart({ limits: { count: 1 } }))).records
    expect(first).toMatchObject({ seqNum: 0, body: "日本", headers: [["name", "value"]], timestamp })
    const { records, tail } = await stream.read(fromStart(), { as: "bytes" })
    expect(records[1].body).toEqual(body)
    expect(records[1].headers).toEqual([[bytesOf(4), new Uint8Array()]])
    expect(records[2].body).toHaveLength(0)
    expect(tail.seqNum).toBe(3)
  })

  test("starts and ends where it is told", async () => {
    const stream = await freshStream()
    const base = Date.now() - 10_000
    const sent = numbered(0, 5).map((body, n) => text(body, { timestamp: base + 10 * n }))
    await stream.append(AppendInput.create(sent))
    const read = async (input) => bodiesOf((await stream.read(input)).records).join("")
    expect(await read({ start: { from: { seqNum: 3 } } })).toBe("34")
    expect(await read({ start: { from: { tailOffset: 2 } } })).toBe("34")
    expect(await read({ start: { from: { timestamp: base + 11 } } })).toBe("234")
    expect(await read({ start: { from: { timestamp: new Date(base + 40) } } })).toBe("4")
    expect(await read(fromStart({ limits: { count: 2 } }))).toBe("01")
    expect(await read(fromStart({ limits: { count: 0 } }))).toBe("")
    expect(await read(fromStart({ limits: { bytes: 9 * 3 } }))).toBe("012")
    expect(await read(fromStart({ untilTimestamp: base + 20 }))).toBe("01")
    expect(await read(fromStart({ waitSecs: 5 }))).toBe("01234")
  })

  test("tells the tail when there is nothing to read", async () => {
    const stream = await freshStream()
    await stream.append(batch(["a"]))
    const error = await failure(() => stream.read({ start: { from: { seqNum: 9 } } }))
    expect(error).toBeInstanceOf(RangeNotSatisfiableError)
    expect([error.status, error.tail.seqNum]).toEqual([416, 1])
    const clamped = { start: { from: { seqNum: 9 }, clamp: true } }
    expect((await failure(() => stream.read(clamped))).status).toBe(416)
    const waited = await stream.read({ ...clamped, stop: { waitSecs: 1 } })
    expect(waited.records).toEqual([])
  })

  test("appends on conditions", async () => {
    const stream = await freshStream()
    await stream.append(batch(["a"], { matchSeqNum: 0 }))
    const late = await failure(() => stream.append(batch(["b"], { matchSeqNum: 0 })))
    expect(late).toBeInstanceOf(SeqNumMismatchError)
    expect([late.status, late.expectedSeqNum]).toEqual([412, 1])
    const token = randomToken(16)
    await stream.append(AppendInput.create([AppendRecord.fence(token)]))
    await stream.append(batch(["b"], { fencingToken: token }))
    const fenced = await failure(() => stream.append(batch(["c"], { fencingToken: "other" })))
    expect(fenced).toBeInstanceOf(FencingTokenMismatchError)
    expect([fenced.status, fenced.expectedFencingToken]).toEqual([412, token])
  })

  test("takes commands, and can leave them out of a read", async () => {
    const stream = await freshStream()
    await stream.append(
      AppendInput.create([text("a"), AppendRecord.fence("token"), text("b"), AppendRecord.trim(1)])
    )
    const found = await stream.read({ ...fromStart(), ignoreCommandRecords: true })
    expect(bodiesOf(found.records)).toEqual(["a", "b"])
    const raw = (await stream.read(fromStart(), { as: "bytes" })).records
    expect(raw).toHaveLength(4)
    expect(Buffer.from(raw[3].body).readBigUInt64BE()).toBe(1n)
  })

  test("refuses what the rules forbid", async () => {
    const basin = await freshBasin()
    await basin.streams.create({
      stream: "strict",
      config: { timestamping: { mode: "client-require" } },
    })
    await refusal(() => basin.stream("strict").append(batch(["a"])), 422, "invalid")
    const command = AppendInput.create([text("a", { headers: [["", "nothing"]] })])
    await refusal(() => basin.stream("strict").append(command), 422, "invalid")
    await refusal(() => basin.stream("missing").append(batch(["a"])), 404, "stream_not_found")
    await refusal(() => basin.stream("missing").read(), 404, "stream_not_found")
  })

  test("creates streams where the basin says so", async () => {
    const basin = await freshBasin({ createStreamOnAppend: true, createStreamOnRead: true })
    const streamConfig = { retentionPolicy: { ageSecs: 60 } }
    await basin.stream("appended").append(batch(["a"], { streamConfig }))
    await basin.stream("read").read({ stop: { waitSecs: 1 }, streamConfig })
    for (const stream of ["appended", "read"]) {
      const config = await basin.streams.getConfig({ stream })
      expect(config.retentionPolicy).toEqual({ ageSecs: 60 })
    }
  })

  test.each(["aes-256-gcm", "aegis-256"])("encrypts with %s and a key of the client", async (cipher) => {
    const basin = await freshBasin({ streamCipher: cipher })
    expect((await basin.streams.create({ stream: "stream" })).cipher).toBe(cipher)
    const stream = basin.stream("stream").withEncryptionKey(EncryptionKey.from(bytesOf(32)))
    await stream.append(batch(["secret"]))
    expect(bodiesOf(await readAll(stream))).toEqual(["secret"])
    await refusal(() => basin.stream("stream").append(batch(["a"])), 400, "bad_header")
    const other = basin.stream("stream", { encryptionKey: bytesOf(64).slice(32) })
    await refusal(() => other.read(fromStart()), 400, "decryption_failed")
  })
})

describe.each(TRANSPORTS)("sessions over %s", (forceTransport) => {
  const stream = (clientOptions) => freshStream({ forceTransport }, clientOptions)

  test("append in order and acknowledge in order", async () => {
    const target = await stream()
    const session = await target.appendSession({ maxInflightBatches: 8 })
    const acks = collect(session.acks())
    const tickets = []
    for (const body of numbered(0, 50)) tickets.push(await session.submit(batch([body, body])))
    const last = await tickets.at(-1).ack()
    expect(last.end.seqNum).toBe(100)
    await session.close()
    expect((await acks).map((ack) => ack.start.seqNum)).toEqual(numbered(0, 50).map((n) => 2 * n))
    expect(session.lastAckedPosition().end.seqNum).toBe(100)
    expect(session.failureCause()).toBeUndefined()
    expect(bodiesOf(await readAll(target))).toEqual(numbered(0, 50).flatMap((n) => [n, n]))
    await target.close()
  })

  test("end at the first failure, and later batches do nothing", async () => {
    const target = await stream()
    const session = await target.appendSession()
    const good = await session.submit(batch(["a"], { matchSeqNum: 0 }))
    const bad = await session.submit(batch(["b"], { matchSeqNum: 9 }))
    const late = await session.submit(batch(["c"]))
    expect((await good.ack()).end.seqNum).toBe(1)
    expect(await failure(() => bad.ack())).toBeInstanceOf(SeqNumMismatchError)
    await failure(() => late.ack())
    expect(session.failureCause()).toBeInstanceOf(SeqNumMismatchError)
    await session.close().catch(() => {})
    expect((await target.checkTail()).tail.seqNum).toBe(1)
  })

  test("carry batches of a mebibyte", async () => {
    const target = await stream()
    const body = bytesOf(AppendRecord.maxBodyBytes())
    const session = await target.appendSession()
    for (let n = 0; n < 4; n++) {
      await session.submit(AppendInput.create([AppendRecord.bytes({ body })]))
    }
    await session.close()
    const found = await readAll(target, { as: "bytes" })
    expect(found.map((record) => record.body.length)).toEqual(Array(4).fill(body.length))
    expect(Buffer.compare(found[3].body, body)).toBe(0)
  })

  test("are streams that can be piped", async () => {
    const target = await stream()
    const session = await target.appendSession()
    const source = new ReadableStream({
      start(controller) {
        for (const body of numbered(0, 20)) controller.enqueue(text(body))
        controller.close()
      },
    })
    const acks = collect(session.acks())
    await source.pipeThrough(new BatchTransform({ maxBatchRecords: 6 })).pipeTo(session.writable)
    expect((await acks).at(-1).end.seqNum).toBe(20)
    expect(bodiesOf(await readAll(target))).toEqual(numbered(0, 20))
  })

  test("read to a limit and end", async () => {
    const target = await stream()
    await target.append(AppendInput.create(numbered(0, 1000).map((body) => text(body))))
    await target.append(AppendInput.create(numbered(1000, 2000).map((body) => text(body))))
    const found = await collect(await target.readSession(fromStart({ limits: { count: 1500 } })))
    expect(bodiesOf(found)).toEqual(numbered(0, 1500))
  })

  test("follow what is appended, and know when they have caught up", async () => {
    const target = await stream()
    await target.append(batch(["a"]))
    const session = await target.readSession(fromStart())
    const reader = session[Symbol.asyncIterator]()
    expect((await reader.next()).value.body).toBe("a")
    for (const body of ["b", "c", "d"]) {
      const next = reader.next()
      await target.append(batch([body]))
      expect((await next).value.body).toBe(body)
    }
    const waiting = reader.next()
    expect((await session.caughtUp()).seqNum).toBe(4)
    expect(session.isCaughtUp()).toBe(true)
    expect(session.lastObservedTail().seqNum).toBe(4)
    expect(session.nextReadPosition().seqNum).toBe(4)
    await target.append(batch(["e"]))
    expect((await waiting).value.body).toBe("e")
    await reader.return()
  })

  test("wait as long as they were told, and end", async () => {
    const target = await stream()
    await target.append(batch(["a"]))
    expect(bodiesOf(await collect(await target.readSession(fromStart({ waitSecs: 1 }))))).toEqual(["a"])
  })

  test("are refused beyond the tail, unless they are clamped", async () => {
    const target = await stream()
    await target.append(batch(["a"]))
    const beyond = { start: { from: { seqNum: 9 } } }
    const error = await failure(async () => collect(await target.readSession(beyond)))
    expect([error.status, error.tail?.seqNum]).toEqual([416, 1])
    const clamped = await target.readSession({ start: { from: { seqNum: 9 }, clamp: true } })
    const next = collect(clamped, 1)
    await clamped.caughtUp()
    await target.append(batch(["b"]))
    expect(bodiesOf(await next)).toEqual(["b"])
  })

  test("of a stream that never was are refused", async () => {
    const basin = await freshBasin()
    const missing = basin.stream("missing", { forceTransport })
    await refusal(async () => collect(await missing.readSession()), 404, "stream_not_found")
    await refusal(
      async () => {
        const session = await missing.appendSession()
        const ticket = await session.submit(batch(["a"]))
        await ticket.ack()
      },
      404,
      "stream_not_found"
    )
  })

  test("create streams where the basin says so", async () => {
    const basin = await freshBasin({ createStreamOnAppend: true, createStreamOnRead: true })
    const streamConfig = { retentionPolicy: { ageSecs: 60 } }
    const appended = basin.stream("appended", { forceTransport })
    const session = await appended.appendSession({ streamConfig })
    await (await session.submit(batch(["a"]))).ack()
    await session.close()
    const read = await basin
      .stream("read", { forceTransport })
      .readSession({ streamConfig, stop: { waitSecs: 1 } })
    expect(await collect(read)).toEqual([])
    for (const stream of ["appended", "read"]) {
      const config = await basin.streams.getConfig({ stream })
      expect(config.retentionPolicy).toEqual({ ageSecs: 60 })
    }
  })

  test.each(COMPRESSIONS)("may compress with %s", async (compression) => {
    const target = await stream({ compression })
    const body = "s2".repeat(10_000)
    const session = await target.appendSession()
    await session.submit(batch([body, "small"]))
    await session.close()
    await target.append(batch([body]))
    expect(bodiesOf(await readAll(target))).toEqual([body, "small", body])
    expect(bodiesOf((await target.read(fromStart())).records)).toEqual([body, "small", body])
  })

  test("may be encrypted", async () => {
    const basin = await freshBasin({ streamCipher: "aegis-256" })
    await basin.streams.create({ stream: "stream" })
    const encryptionKey = EncryptionKey.from(bytesOf(32))
    const target = basin.stream("stream", { forceTransport, encryptionKey })
    const session = await target.appendSession()
    await session.submit(batch(["secret"]))
    await session.close()
    expect(bodiesOf(await readAll(target))).toEqual(["secret"])
    const blind = basin.stream("stream", { forceTransport })
    await refusal(async () => collect(await blind.readSession(fromStart())), 400, "bad_header")
  })

  test("serve a producer, which numbers each record", async () => {
    const target = await stream()
    const session = await target.appendSession()
    const batching = new BatchTransform({ maxBatchRecords: 7, lingerDurationMillis: 5, matchSeqNum: 0 })
    const producer = new Producer(batching, session)
    const tickets = []
    for (const body of numbered(0, 30)) tickets.push(await producer.submit(text(body)))
    await producer.flush()
    const acks = await Promise.all(tickets.map((ticket) => ticket.ack()))
    expect(acks.map((ack) => ack.seqNum())).toEqual(numbered(0, 30).map(Number))
    expect(acks[29].batchAppendAck().end.seqNum).toBe(30)
    await producer.close()
    expect(bodiesOf(await readAll(target))).toEqual(numbered(0, 30))
  })

  test("carry messages larger than a record, by the patterns package", async () => {
    const target = await stream()
    const messages = [{ n: 1 }, { n: 2, text: "x".repeat(3_000_000) }, { n: 3 }]
    const writer = new serialization.SerializingAppendSession(
      await target.appendSession(),
      (message) => new TextEncoder().encode(JSON.stringify(message)),
      { dedupeSeq: 0, matchSeqNum: 0 }
    )
    for (const message of messages) await writer.submit(message)
    const reader = new serialization.DeserializingReadSession(
      await target.readSession(fromStart({ waitSecs: 0 }), { as: "bytes" }),
      (payload) => JSON.parse(new TextDecoder().decode(payload))
    )
    expect(await collect(reader)).toEqual(messages)
  })
})

test("every public method has been called", () => {
  const missing = publicMethods
    .map(([type, name]) => `${type.name}.${name}`)
    .filter((name) => !called.has(name) && !INTERNAL.has(name))
  expect(missing).toEqual([])
})
