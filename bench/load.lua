-- wrk: POST one 100-byte JSON message at a time, over as many streams as asked for.
-- wrk ... -s load.lua URL -- PATH STREAMS
--
-- The tilde occurs once in a message and nowhere else on the wire: followers count deliveries by it.

local body = '{"key":"~' .. string.rep("x", 89) .. '"}'
local headers = { ["Content-Type"] = "application/json" }
local requests = {}
local count, at = 1, 0

function init(arguments)
  count = tonumber(arguments[2])
  for index = 0, count - 1 do
    requests[index] = wrk.format("POST", arguments[1] .. index, headers, body)
  end
end

function request()
  at = (at + 1) % count
  return requests[at]
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    "RESULT %d %d %d %d %d %d\n",
    summary.requests,
    summary.duration,
    errors.connect + errors.read + errors.write + errors.timeout,
    errors.status,
    latency:percentile(50),
    latency:percentile(99)
  ))
end
