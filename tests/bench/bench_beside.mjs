// Beside ioredis, in one process and one run: bench_beside.mjs PLACE PACKAGE, with the daemon's and Redis' sockets in
// PLACE. For scripts/bench-beside. Prints rows of Markdown: microseconds a call, the least of rounds that alternate.

import { createRequire } from 'node:module'
import path from 'node:path'

const ROUNDS = 40
const CALLS = 300
const [place, directory] = process.argv.slice(2)
const require = createRequire(path.join(process.cwd(), 'anchor.cjs'))
const { connect } = require(path.resolve(directory, 'lib', 'index.cjs'))
const Redis = require('ioredis')
const client = await connect(path.join(place, 'gpubufd.sock'))
const redis = new Redis({ path: path.join(place, 'redis') })
const array = new Float64Array(128).fill(1) // 1 KiB
const bytes = Buffer.from(array.buffer)
await client.put('table', { a: array, b: array }, { replace: true })

function check (value) {
  if (value !== 1) throw new Error(`an element is ${value}`)
}

async function open (name, use) {
  const object = await client.open(name)
  check(use(object))
  object.release()
}

const ROWS = {
  'put 1 KiB': [() => client.put('array', array, { replace: true }), () => redis.set('array', bytes)],
  'get 1 KiB, as a typed array': [() => open('array', object => object.values[127]), async () => {
    const { buffer, byteOffset } = await redis.getBuffer('array')
    check(new DataView(buffer, byteOffset).getFloat64(127 * 8, true))
  }],
  'a column of a table': [() => open('table', table => table.column('b').values[127])],
  'a row of a table': [() => open('table', table => table.get(0).b)]
}

async function time (call) {
  const began = performance.now()
  for (let i = 0; i < CALLS; i++) await call()
  return (performance.now() - began) * 1000 / CALLS
}

for (const [what, calls] of Object.entries(ROWS)) {
  const times = calls.map(() => [])
  for (let round = 0; round <= ROUNDS; round++) {
    for (const [i, call] of calls.entries()) {
      const took = await time(call)
      if (round > 0) times[i].push(took) // the first warms up
    }
  }
  const [ours, others] = times.map(all => Math.min(...all))
  console.log(`| ${what} | ${ours.toFixed(1)} µs | ${others === undefined ? '' : `${others.toFixed(1)} µs (${(others / ours).toFixed(1)})`} |`)
}
client.close()
redis.disconnect()
