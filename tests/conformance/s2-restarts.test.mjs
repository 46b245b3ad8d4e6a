// The official TypeScript SDK of S2 while the server is killed, or stopped, and started again.

import { AppendInput, BatchTransform, Producer } from "@s2-dev/streamstore"
import { describe, expect, test } from "vitest"
import {
  TRANSPORTS,
  batch,
  bodiesOf,
  collect,
  freshStream,
  fromStart,
  numbered,
  readAll,
  text,
} from "./s2-target.mjs"
import { required } from "./target.mjs"

const HALF = 300
const retry = { maxAttempts: 500, minBaseDelayMillis: 20, maxBaseDelayMillis: 200 }

/** Returns when the server is back. `way` is kill or stop. */
const interrupt = async (way) => {
  const response = await fetch(`${required("HEADWATER_CONTROL")}/${way}`, { method: "POST" })
  expect(response.status).toBe(204)
}

/** What was sent again may be there twice, after everything before it and before the rest. */
const expectAllInOrder = (bodies) => {
  let expected = 0
  for (const number of bodies.map(Number)) {
    expect(number).toBeLessThanOrEqual(expected)
    expected = Math.max(expected, number + 1)
  }
  expect(expected).toBe(2 * HALF)
}

describe.each(["kill", "stop"])("after a %s", (way) => {
  describe.each(TRANSPORTS)("over %s", (forceTransport) => {
    test("an append session goes on", async () => {
      const stream = await freshStream({ forceTransport }, { retry })
      const session = await stream.appendSession()
      for (const body of numbered(0, HALF)) await session.submit(batch([body]))
      const back = interrupt(way)
      for (const body of numbered(HALF, 2 * HALF)) await session.submit(batch([body]))
      await back
      await session.close()
      expectAllInOrder(bodiesOf(await readAll(stream)))
    })

    test("a producer goes on", async () => {
      const stream = await freshStream({ forceTransport }, { retry })
      const batching = new BatchTransform({ maxBatchRecords: 10 })
      const producer = new Producer(batching, await stream.appendSession())
      for (const body of numbered(0, HALF)) await producer.submit(text(body))
      const back = interrupt(way)
      for (const body of numbered(HALF, 2 * HALF)) await producer.submit(text(body))
      await back
      await producer.close()
      expectAllInOrder(bodiesOf(await readAll(stream)))
    })

    test("a read session goes on", async () => {
      const stream = await freshStream({ forceTransport }, { retry })
      const append = (from, to) =>
        stream.append(AppendInput.create(numbered(from, to).map((body) => text(body))))
      await append(0, HALF)
      const session = await stream.readSession(fromStart())
      const found = collect(session, 2 * HALF)
      await session.caughtUp()
      await interrupt(way)
      await append(HALF, 2 * HALF)
      expect(bodiesOf(await found)).toEqual(numbered(0, 2 * HALF))
    })
  })
})
