// This package's side of what passes between languages: see languages.test.mjs.
//
//   ["tell", NAME]                      {columns: [[name, dtype, nulls], …], rows}
//   ["copy", NAME, NEW, DEVICE]         of what is on the host
//   ["put", WHAT, NAME, DEVICE]         nested, dictionary
//
// Each line of its input is one of these, and answered by a line.
// It tells what Arrow is shown: by toArrow() on the host, by toHost() on a GPU.

import path from 'node:path'
import { createInterface } from 'node:readline'
import { pathToFileURL } from 'node:url'
import * as arrow from 'apache-arrow'

const { connect } = await import(pathToFileURL(path.join(process.env.GPUBUF_NODE_PACKAGE, 'lib', 'index.mjs')))

async function tell (object) {
  const columns = (object.kind === 'table' ? object.columns : [object]).map(({ columnName = '', dtype, nullCount }) => [columnName, dtype, nullCount])
  const shown = object.device === 'host' ? object.toArrow() : await object.toHost()
  return { columns, rows: [...shown.toArray()] }
}

const item = (name, type) => new arrow.Field(name, type, true)
const SOURCES = {
  nested: () => arrow.vectorFromArray([
    { id: 1n, tags: ['a', null, 'größer'], at: { x: 1.5, ok: true } },
    null,
    { id: null, tags: [], at: null },
    { id: 4n, tags: null, at: { x: null, ok: false } }
  ], new arrow.Struct([
    item('id', new arrow.Int64()),
    item('tags', new arrow.List(item('item', new arrow.Utf8()))),
    item('at', new arrow.Struct([item('x', new arrow.Float64()), item('ok', new arrow.Bool())]))
  ])),
  dictionary: () => arrow.vectorFromArray(['b', null, 'a', 'b', 'c', null, 'a'],
    new arrow.Dictionary(new arrow.Utf8(), new arrow.Int8()))
}

const c = await connect()

async function work (what, name, to, device) {
  if (what === 'put') return void await c.put(to, SOURCES[name](), { device, replace: true })
  const object = await c.open(name)
  try {
    if (what === 'copy') return void await c.put(to, object.toArrow(), { device, replace: true })
    return await tell(object)
  } finally {
    object.release()
  }
}

const json = (_, value) => typeof value === 'bigint' ? Number(value) : value
for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await work(...JSON.parse(line)) ?? null, json))
}
c.close()
