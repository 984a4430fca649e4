// This package's side of what passes between languages: see languages.test.mjs.
//
//   ["dump", NAME]
//   ["copy", NAME, NEW, DEVICE]         of what is on the host
//   ["put", WHAT, NAME, DEVICE, [FILE]]  flights (an Arrow file), nested, dictionary
//
// Each line of its input is one of these, and answered by a line.
// It tells what Arrow is shown: by toArrow() on the host, by toHost() on a GPU.

import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { createInterface } from 'node:readline'
import { pathToFileURL } from 'node:url'
import * as arrow from 'apache-arrow'

const { connect } = await import(pathToFileURL(path.join(process.env.GPUBUF_NODE_PACKAGE, 'lib', 'index.mjs')))

const TABLE = Uint32Array.from({ length: 256 }, (_, n) => {
  for (let bit = 0; bit < 8; bit++) n = n >>> 1 ^ (n & 1 ? 0xedb88320 : 0)
  return n
})

function crc (view) {
  let sum = ~0
  for (const byte of new Uint8Array(view.buffer, view.byteOffset, view.byteLength)) {
    sum = sum >>> 8 ^ TABLE[(sum ^ byte) & 255]
  }
  return ~sum >>> 0
}

const bits = (bytes, first, length) => crc(Uint8Array.from({ length },
  (_, i) => 48 + (bytes[(first + i) >> 3] >> ((first + i) & 7) & 1)))

/** Of a column, and of what Arrow shows of it. */
function dump (column, data) {
  const { dtype, nullCount: nulls, length } = column
  const told = { length, children: [], dtype, nulls }
  if (column.columnName !== undefined) told.name = column.columnName
  const bitmap = data.nullBitmap?.length ? bits(data.nullBitmap, data.offset, length) : undefined
  if (dtype === 'dictionary') { // which Arrow here has with the indices
    const [indices, values] = column.children
    const own = { length, children: [], dtype: indices.dtype, nulls: indices.nullCount, data: crc(data.values) }
    if (bitmap !== undefined) own.mask = bitmap
    told.children = [own, dump(values, data.dictionary.data[0])]
    return told
  }
  if (bitmap !== undefined) told.mask = bitmap
  if (dtype === 'bool') {
    told.data = bits(data.values, data.offset, length)
  } else if (data.valueOffsets) {
    const offsets = data.valueOffsets.slice(0, length + 1)
    const first = offsets[0]
    if (dtype !== 'list') told.data = crc(data.values.subarray(first, offsets[length]))
    told.offsets = crc(offsets.map(offset => offset - first))
  } else if (dtype !== 'struct') {
    told.data = crc(data.values)
  }
  told.children = column.children.map((child, i) => dump(child, data.children[i]))
  return told
}

const item = (name, type) => new arrow.Field(name, type, true)
const SOURCES = {
  flights: file => readFile(file),
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

async function work (what, name, to, device, file) {
  if (what === 'put') return void await c.put(to, await SOURCES[name](file), { device, replace: true })
  const object = await c.open(name)
  try {
    if (what === 'copy') return void await c.put(to, object.toArrow(), { device, replace: true })
    const shown = object.device === 'host' ? object.toArrow() : await object.toHost()
    const told = object.kind === 'table'
      ? { length: object.length, children: object.columns.map((column, i) => dump(column, shown.getChildAt(i).data[0])) }
      : dump(object, shown.data[0])
    return { told, first: [...shown.toArray().slice(0, 8)] }
  } finally {
    object.release()
  }
}

const json = (_, value) => typeof value === 'bigint' ? Number(value) : value
for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await work(...JSON.parse(line)) ?? null, json))
}
c.close()
