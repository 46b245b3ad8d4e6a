import { defineConfig } from "vitest/config"

export default defineConfig({
  test: {
    include: ["*.test.mjs"],
    testTimeout: 40_000,
    hookTimeout: 40_000,
    fileParallelism: false,
    retry: 0,
  },
})
