// The server under test. test_conformance.py starts it and says where it is.

function required(name) {
  const value = process.env[name]
  if (!value) throw new Error(`set ${name}, or run \`make conformance\``)
  return value
}

export const baseUrl = required("HEADWATER_URL")
export const longPollTimeoutMs = Number(required("HEADWATER_LONG_POLL_TIMEOUT_MS"))
