// The reference server, for the benchmark: node peer.mjs [DATA_DIR]
// With a folder it uses its file store, without one its memory. Prints its address when ready.

import { DurableStreamTestServer } from "@durable-streams/server"

const dataDir = process.argv[2]
const server = new DurableStreamTestServer({ host: "127.0.0.1", port: 0, dataDir })
console.log(await server.start())

process.on("SIGTERM", async () => {
  await server.stop()
  process.exit(0)
})
