// Node, Python and C: what one of them publishes all three see with the same bytes and the same nulls, on
// the host and on a GPU (that of tests/fakecuda). columns.mjs, columns.py and columns.c tell each buffer by
// its CRC-32; that the content is right is held against the sources themselves.

import assert from 'node:assert/strict'
import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { createInterface } from 'node:readline'
import test, { after } from 'node:test'
import { promisify } from 'node:util'
import { BUILD, Daemon, HERE, PACKAGE, arrow, data } from './harness.mjs'

const execute = promisify(execFile)
const OUTPUT = path.join(PACKAGE, '..', '..') // the build without sanitizers, as Node and Python are
const PYTHON = process.env.GPUBUF_PYTHON ?? 'python3'

const missing = await (async () => {
  if (!arrow) return 'apache-arrow is not installed'
  for (const file of ['node/columns', 'python/gpubufd/_core.abi3.so', 'fakecuda/libcuda.so.1']) {
    if (!existsSync(path.join(OUTPUT, file))) return `${file} is not built`
  }
  return execute(PYTHON, ['-c', 'import numpy, pandas']).then(() => false, () => 'NumPy and pandas are not installed')
})()

const place = await mkdtemp(path.join(os.tmpdir(), 'gpubuf-languages-'))
const gpu = { FAKECUDA_DIR: place, LD_LIBRARY_PATH: path.join(OUTPUT, 'fakecuda') }
const daemon = new Daemon()
if (!missing) {
  daemon.directory = await mkdtemp(path.join(os.tmpdir(), 'gpubuf-'))
  daemon.socket = path.join(daemon.directory, 's')
  daemon.options = ['--device', 'cuda:0:64M', '--device', 'host:64M']
  daemon.environment = { ...gpu, LD_LIBRARY_PATH: path.join(BUILD, 'fakecuda') }
  await daemon.run()
}
after(async () => {
  for (const one of Object.values(workers)) await one.end()
  if (!missing) await daemon.stop()
  await rm(place, { recursive: true, force: true })
})

const environment = {
  ...process.env, ...gpu, GPUBUFD_SOCKET: daemon.socket, GPUBUF_NODE_PACKAGE: PACKAGE, PYTHONPATH: path.join(OUTPUT, 'python')
}

/** A process for all that one language does: what it imports takes longer than what it does. */
function worker (program, file) {
  const child = spawn(program, [path.join(HERE, file)], { env: environment, stdio: ['pipe', 'pipe', 'inherit'] })
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]()
  let turn = Promise.resolve()
  return {
    ask: words => (turn = turn.then(async () => {
      child.stdin.write(JSON.stringify(words) + '\n')
      return JSON.parse((await lines.next()).value)
    })),
    end: () => {
      child.stdin.end()
      return once(child, 'exit')
    }
  }
}

const workers = missing ? {} : { node: worker(process.execPath, 'columns.mjs'), python: worker(PYTHON, 'columns.py') }

async function run (language, ...words) {
  if (workers[language]) return workers[language].ask(words)
  const { stdout } = await execute(path.join(OUTPUT, 'node', 'columns'), words, { env: environment })
  return stdout && JSON.parse(stdout)
}

const sorted = value => JSON.stringify(value, (_, v) => v && typeof v === 'object' && !Array.isArray(v)
  ? Object.fromEntries(Object.entries(v).sort()) : v, 1)

/** All three see the same; what that is. */
async function seenByAll (name) {
  const [{ told, first }, ...others] = await Promise.all(['node', 'python', 'c'].map(language => run(language, 'dump', name)))
  others.forEach((other, i) => assert.equal(sorted(other), sorted(told), `${name}, as ${['Python', 'C'][i]} sees it`))
  return { told, first }
}

/** Fields of one line of CSV. */
const fields = line => [...`${line},`.matchAll(/("(?:[^"]|"")*"|[^,]*),/g)].map(match => match[1])
  .map(text => text.startsWith('"') ? text.slice(1, -1).replaceAll('""', '"') : text)

const NESTED = [
  { id: 1, tags: ['a', null, 'größer'], at: { x: 1.5, ok: true } },
  null,
  { id: null, tags: [], at: null },
  { id: 4, tags: null, at: { x: null, ok: false } }
]
const DICTIONARY = ['b', null, 'a', 'b', 'c', null, 'a']

for (const device of ['host', 'cuda:0']) {
  test(`nested and dictionary columns, ${device}`, { skip: missing }, async () => {
    const expected = { nested: NESTED, dictionary: DICTIONARY }
    for (const [what, values] of Object.entries(expected)) {
      const told = {}
      for (const source of ['node', 'python']) {
        const name = `${device}/${what}/${source}`
        await run(source, 'put', what, name, device)
        const seen = await seenByAll(name)
        assert.deepEqual(seen.first, values, name)
        told[source] = seen.told
        await run(source, 'put', what, `again/${what}`, 'host')
        await run('c', 'copy', `again/${what}`, `${name}/by c`, device)
        const again = await seenByAll(`${name}/by c`)
        assert.deepEqual(again.first, values)
        assert.equal(sorted(again.told), sorted(told[source]), `${name}, published by C`)
      }
    }
  })

  test(`flights, ${device}`, { skip: missing }, async () => {
    const table = arrow.tableFromIPC(await readFile(data('flights-200k.arrow')))
    const raw = path.join(place, 'flights')
    const views = ['delay', 'distance', 'time'].map(name => table.getChild(name).toArray())
    await writeFile(raw, Buffer.concat(views.map(view => Buffer.from(view.buffer, view.byteOffset, view.byteLength))))
    await run('node', 'put', 'flights', `${device}/flights/node`, device, data('flights-200k.arrow'))
    await run('python', 'put', 'flights', `${device}/flights/python`, device, raw)
    await run('node', 'put', 'flights', 'again/flights', 'host', data('flights-200k.arrow'))
    await run('c', 'copy', 'again/flights', `${device}/flights/c`, device)
    const seen = []
    for (const source of ['node', 'python', 'c']) seen.push(await seenByAll(`${device}/flights/${source}`))
    for (const { told, first } of seen) {
      assert.equal(sorted(told), sorted(seen[0].told))
      assert.deepEqual(first, table.slice(0, 8).toArray().map(row => row.toJSON()))
      assert.deepEqual(told.children.map(({ dtype, length, nulls }) => [dtype, length, nulls]),
        [['int16', 200_000, 0], ['int16', 200_000, 0], ['float32', 200_000, 0]])
    }
  })

  test(`movies, ${device}`, { skip: missing }, async () => {
    const [head, ...lines] = (await readFile(data('movies.csv'), 'utf8')).trimEnd().split('\n').map(fields)
    await daemon.ctl('put', '--device', 'host', '--replace', 'again/movies', data('movies.csv'))
    await daemon.ctl('put', '--device', device, `${device}/movies/gpubufctl`, data('movies.csv'))
    await run('c', 'copy', 'again/movies', `${device}/movies/c`, device)
    await run('node', 'copy', 'again/movies', `${device}/movies/node`, device)
    await run('python', 'put', 'movies', `${device}/movies/python`, device, data('movies.csv'))
    let last
    for (const source of ['gpubufctl', 'c', 'node', 'python']) {
      const { told, first } = await seenByAll(`${device}/movies/${source}`)
      assert.equal(told.length, lines.length)
      for (const [i, column] of told.children.entries()) {
        assert.equal(column.name, head[i])
        assert.equal(column.nulls, lines.filter(line => line[i] === '').length, column.name)
      }
      first.forEach((row, i) => head.forEach((name, k) => {
        if (row[name] === null) assert.equal(lines[i][k], '', name)
        else assert.ok(String(row[name]) === lines[i][k] || Number(row[name]) === Number(lines[i][k]) ||
          new Date(row[name]).toISOString().slice(0, 10) === lines[i][k], `${name}: ${row[name]}, ${lines[i][k]}`)
      }))
      // Python infers types by itself; the others have taken what gpubufctl did.
      if (last && source !== 'python') assert.equal(sorted(told), sorted(last), source)
      last = told
    }
  })
}
