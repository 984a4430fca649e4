// Providers: names that are made when somebody waits for them.

import assert from 'node:assert/strict'
import test from 'node:test'
import { Daemon, connect, fixture, run, until } from './harness.mjs'

const { daemon, connect: client } = await fixture()
const c = await client()
const other = await client()
const WAIT = { timeout: 60_000 }

/** The object's content once it is made, as text; released. */
async function text (name, by = other) {
  const object = await by.open(name, WAIT)
  try {
    return Buffer.from(object.bytes).toString()
  } finally {
    object.release()
  }
}

/** A promise, and what settles it. */
function gate () {
  let open
  const opened = new Promise(resolve => { open = resolve })
  return { open, opened }
}

test('loads that hang are given up, and stop no others', async () => {
  const signals = []
  const provider = await c.provide('hang/', (name, { signal }) => {
    if (name === 'hang/no') return Int32Array.of(1)
    signals.push(signal)
    return new Promise(() => {})
  }, { concurrency: 1, loadTimeout: 50 })
  for (let i = 0; i < 3; i++) {
    await assert.rejects(other.open(`hang/${i}`, WAIT), { kind: 'unavailable', message: /more than 50 ms/ })
  }
  let made
  await until(async () => { // a machine that stands still for longer than a load may take has another try
    made = await other.open('hang/no', WAIT).catch(error => assert.equal(error.kind, 'unavailable'))
    return made
  })
  assert.deepEqual([...made.values], [1])
  assert.deepEqual(signals.map(signal => signal.aborted), [true, true, true])
  await provider.close()
  await assert.rejects(c.provide('hang/', () => {}, { loadTimeout: 0 }), RangeError)
})

test('a name is made once however many wait', async () => {
  const { open, opened } = gate()
  const asked = []
  const provider = await c.provide('once/', async (name, { uid, gid, signal }) => {
    asked.push([name, uid, gid, signal.aborted])
    await opened
    return Int32Array.of(1, 2, 3)
  }, { evict: 'drop', ttl: 3_600_000 })
  assert.deepEqual([provider.prefix, provider.closed], ['once/', false])
  const opening = Array.from({ length: 8 }, () => other.open('once/a', WAIT))
  opening.push(c.open('once/a', WAIT)) // its own client, too
  await until(() => asked.length)
  open()
  for (const object of await Promise.all(opening)) {
    assert.deepEqual(object.values, Int32Array.of(1, 2, 3))
    object.release()
  }
  assert.deepEqual(asked, [['once/a', process.getuid(), process.getgid(), false]])
  const { evict, ttl_ms: ttl } = await c.stat('once/a')
  assert.deepEqual([evict, ttl], ['drop', 3_600_000])
  await assert.rejects(other.open('once/b'), { kind: 'not_found' }) // which does not wait
  await provider.close()
  await provider.close()
  assert.equal(provider.closed, true)
  await assert.rejects(other.open('once/b', { timeout: 50 }), { kind: 'timeout' })
  assert.equal(asked.length, 1)
  await c.delete('once/a')
})

test('many names, some at a time', async () => {
  let now = 0
  let most = 0
  await using_(await c.provide('many/', async name => {
    most = Math.max(most, ++now)
    await new Promise(setImmediate)
    now--
    return Buffer.from(name)
  }, { concurrency: 3 }), async () => {
    const names = Array.from({ length: 100 }, (_, i) => `many/${i}`)
    const objects = await other.openMany(names, WAIT)
    assert.deepEqual(objects.map(object => Buffer.from(object.bytes).toString()), names)
    objects.forEach(object => object.release())
    assert.equal(most, 3)
    await c.delete(names)
  })
})

/** `using`, which Node 18 does not read. */
async function using_ (provider, work) {
  try {
    await work()
  } finally {
    await provider.close()
  }
}

test('what a loader throws ends the waiting', async () => {
  const { NotFoundError } = (await import('./harness.mjs')).gpubufd
  const throws = {
    found: () => { throw new NotFoundError('there is no such column', 'not_found', -32001) },
    file: async () => (await import('node:fs/promises')).readFile('/nonexistent/file'),
    disk: async () => { throw new RangeError('the disk is on fire') },
    string: () => { throw 'enough' }, // eslint-disable-line no-throw-literal
    value: () => 7,
    long: () => { throw new Error('ä'.repeat(2000)) },
    none: () => undefined
  }
  await using_(await c.provide('bad/', name => throws[name.slice(4)]()), async () => {
    for (const [what, kind, message] of [
      ['found', 'not_found', /there is no such column/], ['file', 'not_found', /\/nonexistent\/file/],
      ['disk', 'unavailable', /RangeError: the disk is on fire/], ['string', 'unavailable', /enough/],
      ['value', 'unavailable', /TypeError: put\(\) takes/], ['long', 'unavailable', /Error: ää/], ['none', 'not_found', /gave nothing/]
    ]) {
      for (let i = 0; i < 2; i++) await assert.rejects(other.open(`bad/${what}`, WAIT), { kind, message }) // asked anew
    }
    await assert.rejects(other.open('bad/disk', WAIT), { name: 'UnavailableError' })
    const errors = await other.openMany(['bad/found', 'bad/disk'], { ...WAIT, partial: true })
    assert.deepEqual(errors.map(error => error.kind), ['not_found', 'unavailable'])
  })
})

test('a loader that publishes by itself, and one that another was quicker than', async () => {
  await using_(await c.provide('self/', async name => {
    await c.put(name, Buffer.from('by itself'))
    return name.endsWith('twice') ? Buffer.from('again') : undefined
  }), async () => {
    assert.equal(await text('self/a'), 'by itself')
    assert.equal(await text('self/twice'), 'by itself')
    await c.delete(['self/a', 'self/twice'])
  })
})

test('the signal is aborted when nobody waits, and what is asked for again is loaded again', async () => {
  const asked = []
  const { open, opened } = gate()
  await using_(await c.provide('left/', async (name, { signal }) => {
    asked.push(signal)
    if (asked.length === 2) return Buffer.from('second')
    await opened
    signal.throwIfAborted()
    return Buffer.from('first')
  }), async () => {
    const leaving = await client()
    const first = leaving.open('left/a', WAIT)
    await until(() => asked.length)
    leaving.close()
    await assert.rejects(first, { kind: 'closed' })
    await until(() => asked[0].aborted)
    const again = text('left/a')
    await other.list() // the daemon has asked by now, most often while the first load is under way
    open()
    assert.equal(await again, 'second')
    assert.equal(asked.length, 2)
    await c.delete('left/a')
  })
})

test('close() waits for what is being loaded; close() of the client ends it', async () => {
  const begun = gate()
  const ended = gate()
  const load = async (_, { signal }) => {
    begun.open()
    await new Promise(resolve => signal.addEventListener('abort', resolve))
    ended.open()
    return Buffer.from('late')
  }
  const provider = await c.provide('end/', load)
  const waiting = other.open('end/a', WAIT)
  await begun.opened
  const closing = provider.close()
  await ended.opened
  await closing
  const own = await client()
  await own.provide('end/', () => Buffer.from('instead'))
  const object = await waiting // published late, or by the next
  assert.match(Buffer.from(object.bytes).toString(), /late|instead/)
  object.release()
  own.close()
  await until(async () => (await c.call('sessions')).sessions.length === 2)
  await c.delete('end/a')
})

test('the scope is remembered', async () => {
  await c.put('s/a', Int8Array.of(1), { scope: 'cluster' })
  await c.put('s/b', Int8Array.of(1), { scope: 'local' })
  assert.deepEqual((await c.list('s/')).map(({ scope }) => scope), ['cluster', undefined])
  for await (const { kind, object } of c.watch('s/a')) {
    assert.deepEqual([kind, object.scope], ['sealed', 'cluster'])
    break
  }
  await c.delete(['s/a', 's/b'])
})

test('wrong arguments', async () => {
  for (const wrong of [[7, () => 1], ['w/'], ['w/', 7], ['w/', () => 1, { concurrency: 0 }], ['w/', () => 1, { evict: 'never' }],
    ['w/', () => 1, { signal: 7 }], ['w/', () => 1, { scope: 'galaxy' }]]) {
    await assert.rejects(c.provide(...wrong), error => error instanceof TypeError || error instanceof RangeError, String(wrong))
  }
  await assert.rejects(c.provide('x'.repeat(300), () => 1), { kind: 'invalid' })
  await assert.rejects(c.put('s', Int8Array.of(1), { scope: 'galaxy' }), TypeError)
  const closed = await client()
  closed.close()
  await assert.rejects(closed.provide('w/', () => 1), { kind: 'closed' })
  await until(async () => (await c.call('sessions')).sessions.length === 2)
})

test('a provider keeps its process alive, and its close lets it end', async () => {
  const { code, stdout, stderr } = await run(`
    const c = await connect(process.env.S)
    const provider = await c.provide('alive/', () => Buffer.from('x'))
    setTimeout(async () => { (await c.open('alive/a', { timeout: 60_000 })).release(); console.log('made'); await c.delete('alive/a')
      await provider.close() }, 1).unref()`, { S: daemon.socket })
  assert.deepEqual([code, stdout, stderr], [0, 'made\n', ''])
})

for (const how of ['kill -9', 'stop']) {
  test(`it outlives its daemon: ${how}`, async () => {
    const mortal = await Daemon.start()
    const retryStrategy = how === 'stop' ? () => null : undefined // else it comes back by itself
    const own = await connect({ socket: mortal.socket, timeout: 60_000, retryStrategy })
    const asked = []
    const provider = await own.provide('r/', name => {
      asked.push(name)
      return Buffer.from('again')
    })
    try {
      assert.equal(await text('r/a', own), 'again')
      if (how === 'stop') mortal.process.kill('SIGTERM')
      else mortal.process.kill('SIGKILL')
      await mortal.ended
      await mortal.run()
      const reader = await connect({ socket: mortal.socket })
      assert.equal(await text('r/a', reader), 'again')
      assert.deepEqual(asked, ['r/a', 'r/a'])
      reader.close()
    } finally {
      await provider.close()
      own.close()
      await mortal.stop()
    }
  })
}
