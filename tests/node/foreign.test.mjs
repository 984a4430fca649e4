// Content of another user: whatever its offsets and codes say, a reader stays within the object, and ends.

import assert from 'node:assert/strict'
import { chmod } from 'node:fs/promises'
import path from 'node:path'
import test from 'node:test'
import { PYTHON, ROOT, arrow, fixture, worker } from './harness.mjs'

const OTHER = 61803 // a uid that no account has
const OBJECTS = process.env.GPUBUF_TEST_HUNT ? 5000 : 150
const asRoot = { skip: process.geteuid() === 0 ? false : 'needs root' }

const { daemon, connect } = await fixture()
const c = await connect()

/** A function that publishes objects as another user. */
async function other () {
  await chmod(daemon.directory, 0o711)
  const program = path.join(ROOT, 'tests', 'integration', 'wild.py')
  return worker(PYTHON, [program, daemon.socket, String(OTHER)])
}

const WAYS = {
  elements: object => object.toArray?.() ?? [...object],
  first: object => object.get?.(0),
  part: object => object.slice(0, Math.min(object.length, 2)).toArray?.(),
  ...(arrow && {
    arrow: object => JSON.stringify(object.toArrow(), (_, value) => typeof value === 'bigint' ? String(value) : value),
    'arrow, copied': async object => JSON.stringify([...(await object.toHost())].map(String))
  })
}

test('no content leads astray', asRoot, async () => {
  const publish = await other()
  const refused = Object.fromEntries(Object.keys(WAYS).map(way => [way, 0]))
  let done = 0
  for (let seed = 0; seed < OBJECTS; seed++) {
    await publish([seed, 'x'])
    const object = await c.open('x')
    for (const [way, read] of Object.entries(WAYS)) {
      try {
        await read(object)
        done++
      } catch (error) {
        if (error.kind === 'invalid') refused[way]++
        else assert.doesNotMatch(error.message, /length|memory/, way) // as of an array that is as long as an offset says
      }
    }
    object.release()
  }
  assert.ok(done > OBJECTS && Object.values(refused).every(count => count > OBJECTS / 20), JSON.stringify(refused))
})
