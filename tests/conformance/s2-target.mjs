// What the tests of the S2 SDK share: the server under test, names of their own, small builders.

import { AppendInput, AppendRecord, S2 } from "@s2-dev/streamstore"
import { expect } from "vitest"
import { baseUrl, failure } from "./target.mjs"

const run = Date.now().toString(36)
let made = 0
export const freshName = (kind = "basin") => `${kind}-${run}-${++made}`

export const connect = (options = {}) =>
  new S2({
    accessToken: "any token will do while authentication is off",
    endpoints: { account: baseUrl, basin: baseUrl },
    ...options,
  })

/** A basin of its own for one test. */
export const freshBasin = async (config, options) => {
  const s2 = connect(options)
  const basin = freshName()
  await s2.basins.create({ basin, config })
  return s2.basin(basin)
}

export const freshStream = async (options = {}, clientOptions) => {
  const basin = await freshBasin(undefined, clientOptions)
  await basin.streams.create({ stream: "stream" })
  return basin.stream("stream", options)
}

export const text = (body, options = {}) => AppendRecord.string({ body, ...options })
export const batch = (bodies, options) => AppendInput.create(bodies.map((body) => text(body)), options)
export const numbered = (from, to) => Array.from({ length: to - from }, (_, i) => String(from + i))
export const bytesOf = (length) => Uint8Array.from({ length }, (_, i) => (i * 31 + (i >> 8)) & 0xff)

export const collect = async (session, count = Infinity) => {
  const records = []
  for await (const record of session) {
    records.push(record)
    if (records.length >= count) break
  }
  return records
}
export const fromStart = (stop) => ({ start: { from: { seqNum: 0 } }, stop })
/** Everything up to the tail. */
export const readAll = async (stream, options) =>
  collect(await stream.readSession(fromStart({ waitSecs: 0 }), options))
export const bodiesOf = (records) => records.map((record) => record.body)

/** Asserts that `action` is refused with this status and code. */
export const refusal = async (action, status, code) => {
  const error = await failure(action)
  expect([error.status, error.code, error.message]).toEqual([status, code, expect.any(String)])
  return error
}

export const TRANSPORTS = ["s2s", "fetch"]
