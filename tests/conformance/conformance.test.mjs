// The published Durable Streams suite, all of it.

import { runConformanceTests } from "@durable-streams/server-conformance-tests"
import { baseUrl, longPollTimeoutMs } from "./target.mjs"

runConformanceTests({ baseUrl, longPollTimeoutMs, subscriptions: true })
