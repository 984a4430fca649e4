// Node, Python and the command line: what one of them publishes the others see with the same types, nulls and values, which
// are those of the source; on the host and on a GPU (that of tests/fakecuda).

import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import test from 'node:test'
import { HERE, PACKAGE, PYTHON, arrow, connect, data, fixtureWithGpu, noGpu, withoutPython, worker } from './harness.mjs'

const missing = noGpu || (arrow ? await withoutPython('numpy, pandas') : 'apache-arrow is not installed')
const { daemon, gpu } = missing ? {} : await fixtureWithGpu()
const environment = { ...gpu, GPUBUFD_SOCKET: daemon?.socket, GPUBUF_NODE_PACKAGE: PACKAGE }
const [inNode, inPython] = missing
  ? []
  : [[process.execPath, 'columns.mjs'], [PYTHON, 'columns.py']].map(([program, file]) => worker(program, [path.join(HERE, file)], environment))

/** Both see the same columns, [[name, dtype, nulls], …]; and the rows as each of them has them. */
async function seenByBoth (name) {
  const [told, other] = await Promise.all([inNode, inPython].map(ask => ask(['tell', name])))
  assert.deepEqual(other.columns, told.columns, `${name}, as Python sees it`)
  return { columns: told.columns, rows: [told.rows, other.rows] }
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

test('text is categories in pandas where apache-arrow has a dictionary, and text where it has none', { skip: missing }, async () => {
  const words = ['Linz', null, 'größer', '', 'Linz', null]
  const more = ['Wien', 'Linz', null, 'Graz']
  const as = indices => new arrow.Dictionary(new arrow.Utf8(), indices)
  const table = (values, type) => type
    ? new arrow.Table({ words: arrow.vectorFromArray(values, type) })
    : arrow.tableFromArrays({ words: values })
  const several = table(words).concat(table(more))
  const seen = [...new Set(words)].filter(word => word !== null)
  const cases = [ // what is put, its categories, its values
    [table(words), seen, words],
    [table(words).slice(1, 5), seen, words.slice(1, 5)],
    [several, [...seen, 'Wien', 'Graz'], [...words, ...more]],
    [arrow.tableToIPC(several), [...seen, 'Wien', 'Graz'], [...words, ...more]],
    [table(words, as(new arrow.Uint8())), seen, words],
    [table(words, as(new arrow.Int8())).concat(table(more, as(new arrow.Int8()))), [...seen, 'Wien', 'Graz'], [...words, ...more]],
    [table([null, null], as(new arrow.Int32())), [], [null, null]],
    [table(words, new arrow.Utf8()), null, words],
    [table(words, new arrow.LargeUtf8()), null, words],
    [{ words }, null, words],
    [words.map(word => ({ words: word })), null, words]
  ]
  const client = await connect(daemon.socket)
  for (const [value, ...expected] of cases) {
    await client.put('text', value, { as: 'table', device: 'host', replace: true })
    assert.deepEqual(await inPython(['text', 'text']), expected)
  }
  client.close()
})

for (const device of ['host', 'cuda:0']) {
  test(`nested and dictionary columns, ${device}`, { skip: missing }, async () => {
    const expected = { nested: NESTED, dictionary: DICTIONARY }
    for (const [what, values] of Object.entries(expected)) {
      for (const [source, run] of Object.entries({ node: inNode, python: inPython })) {
        const name = `${device}/${what}/${source}`
        await run(['put', what, name, device])
        assert.deepEqual((await seenByBoth(name)).rows, [values, values], name)
      }
    }
  })

  test(`movies, ${device}`, { skip: missing }, async () => {
    const [head, ...lines] = (await readFile(data('movies.csv'), 'utf8')).trimEnd().split('\n').map(fields)
    await daemon.ctl('put', '--device', 'host', '--replace', 'again/movies', data('movies.csv'))
    await daemon.ctl('put', '--device', device, `${device}/movies/gpubufctl`, data('movies.csv'))
    await inNode(['copy', 'again/movies', `${device}/movies/node`, device])
    await inPython(['put', 'movies', `${device}/movies/python`, device, data('movies.csv')])
    let last
    for (const source of ['gpubufctl', 'node', 'python']) {
      const { columns, rows } = await seenByBoth(`${device}/movies/${source}`)
      assert.deepEqual(columns.map(([name]) => name), head)
      for (const [i, [name, , nulls]] of columns.entries()) assert.equal(nulls, lines.filter(line => line[i] === '').length, name)
      for (const one of rows) {
        assert.equal(one.length, lines.length)
        one.forEach((row, i) => head.forEach((name, k) => {
          if (row[name] === null) assert.equal(lines[i][k], '', name)
          else assert.ok(String(row[name]) === lines[i][k] || Number(row[name]) === Number(lines[i][k]) ||
            new Date(row[name]).toISOString().slice(0, 10) === lines[i][k], `${name}: ${row[name]}, ${lines[i][k]}`)
        }))
      }
      // Python infers types by itself; the others have taken what gpubufctl did.
      if (last && source !== 'python') assert.deepEqual(columns, last, source)
      last = columns
    }
  })
}
