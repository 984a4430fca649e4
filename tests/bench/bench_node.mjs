// As bench_client.c, by the package for Node: bench_node.mjs SOCKET PACKAGE. The column is the one that
// bench_client has published.

import { createRequire } from 'node:module'
import path from 'node:path'
import readline from 'node:readline'

const NAME = 'client/column'
const [socket, directory] = process.argv.slice(2)
const { connect } = createRequire(import.meta.url)(path.resolve(directory, 'lib', 'index.cjs'))
const client = await connect(socket)

async function open (end) {
  let opened = 0
  do {
    const object = await client.open(NAME)
    object.release()
    opened++
  } while (performance.now() < end)
  return opened
}

for await (const line of readline.createInterface({ input: process.stdin })) {
  const [inFlight, seconds] = line.split(' ').map(Number)
  const start = performance.now()
  const counts = await Promise.all(Array.from({ length: inFlight }, () => open(start + seconds * 1000)))
  console.log(Math.round(counts.reduce((sum, count) => sum + count) / (performance.now() - start) * 1000))
}
client.close()
