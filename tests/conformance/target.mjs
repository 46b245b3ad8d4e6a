// The server under test, which the Python side starts and says where it is, and what tests share.

import { expect } from "vitest"

export function required(name) {
  const value = process.env[name]
  if (!value) throw new Error(`set ${name}, or run \`make conformance\``)
  return value
}

export const baseUrl = required("HEADWATER_URL")
export const longPollTimeoutMs = Number(required("HEADWATER_LONG_POLL_TIMEOUT_MS"))

/** Runs `action`, which must fail, and gives the error back. */
export const failure = async (action) => {
  const outcome = await Promise.resolve()
    .then(action)
    .then(
      () => ({ failed: false }),
      (error) => ({ failed: true, error })
    )
  expect(outcome.failed, "expected a failure").toBe(true)
  return outcome.error
}
