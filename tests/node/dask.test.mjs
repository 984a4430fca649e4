// gpubufd/dask: collections of Dask's in Node, and tables of Node's in Dask.

import assert from 'node:assert/strict'
import path from 'node:path'
import test from 'node:test'
import { PACKAGE, PYTHON, arrow, fixture, gpubufd, require, until, withoutPython, worker } from './harness.mjs'

const { getDataset, publishDataset } = require(path.join(PACKAGE, 'lib', 'dask.cjs'))
const skip = arrow ? await withoutPython('dask.dataframe, dask.array') : 'apache-arrow is not installed'
const { daemon, connect } = skip ? {} : await fixture()
const client = await connect?.()
const PROGRAM = `
import gc, json, sys, dask, dask.array as da, dask.dataframe as dd, pandas as pd, numpy as np, gpubufd, gpubufd.dask as gd
for line in sys.stdin:
    found = {}
    exec(json.loads(line), {**globals(), "found": found})
    gc.collect()
    print(json.dumps(found.get("said")), flush=True)
`
/** Python code; what it says: `found["said"] = …`. */
const python = skip ? undefined : worker(PYTHON, ['-c', PROGRAM], { GPUBUFD_SOCKET: daemon.socket })

const SALES = `
frame = pd.DataFrame({"city": ["Linz", None, "Graz", "Wien"], "degrees": [1.5, 2.5, np.nan, 4.5]}, index=[10, 20, 30, 40])
gd.publish(dd.from_pandas(frame, npartitions=2), "sales", replace=True)
`
const names = async () => (await client.list()).map(({ name }) => name)

test('a frame of Dask\'s in Node', { skip }, async () => {
  await python(SALES)
  const sales = await getDataset(client, 'sales')
  assert.deepEqual([sales.kind, sales.numRows, sales.columnNames, sales.divisions], ['frame', 4, ['city', 'degrees'], [10, 30, 40]])
  assert.deepEqual(sales.partitions.map(({ rows }) => rows), [2, 2])
  const whole = await sales.toArrow()
  assert.deepEqual([...whole.getChild('city')], ['Linz', null, 'Graz', 'Wien'])
  assert.deepEqual([...whole.getChild('degrees')].slice(0, 2), [1.5, 2.5])
  assert.equal((await sales.toArrow({ columns: ['degrees'] })).numCols, 1)
  const found = []
  for await (const table of sales) found.push(...table.column('city'))
  assert.deepEqual(found, ['Linz', null, 'Graz', 'Wien'])
  await assert.rejects(sales.open(2), RangeError)

  // A collection that is replaced stays for its readers, and goes with the last of them.
  await python(SALES)
  const before = (await names()).length
  const first = await sales.open(0)
  assert.equal(first.column('city').get(0), 'Linz')
  first.release()
  await sales.release()
  assert.equal((await names()).length, before - 4) // two partitions, schema and lease
  await assert.rejects(sales.open(0), gpubufd.StaleError)
  await python('gd.delete("sales")')
  await until(async () => (await names()).length === 0, 'nothing to be left')
  await assert.rejects(getDataset(client, 'sales'), gpubufd.NotFoundError)
})

test('an array of Dask\'s in Node', { skip }, async () => {
  await python('gd.publish(da.arange(12, chunks=5, dtype="f4"), "a")')
  const blocks = await getDataset(client, 'a')
  const found = []
  for await (const block of blocks) found.push(...block.values)
  assert.deepEqual(found, [...Array(12).keys()])
  assert.deepEqual([blocks.kind, blocks.numRows, blocks.partitions[2].shape], ['array', undefined, [2]])
  await assert.rejects(blocks.toArrow(), gpubufd.UnsupportedError)
  await blocks.release()
  await python('gd.delete("a")')
})

test('tables of Node\'s in Dask', { skip }, async () => {
  const dates = [new Date('2026-01-01'), new Date('2026-01-02')]
  const parts = [
    { city: ['Linz', null], n: [1, 2], count: BigInt64Array.of(1n, 2n), some: [true, null], day: dates, kind: ['a', 'b'] },
    { city: ['Graz', 'Wien'], n: [3, null], count: BigInt64Array.of(3n, 4n), some: [null, false], day: dates, kind: ['b', 'a'] }
  ]
  async function * later () { yield * parts }
  await publishDataset(client, 'mine', later(), { mode: '0644' })
  assert.deepEqual(await python(`
loaded = gd.load("mine")
assert loaded.npartitions == 2 and loaded.divisions == (0, 2, 3), loaded.divisions
frame = loaded.compute()
assert frame.index.tolist() == [0, 1, 2, 3] and frame["count"].dtype == "int64" and frame.day.dtype.kind == "M"
assert loaded._meta.dtypes.equals(frame.dtypes), (loaded._meta.dtypes, frame.dtypes)
found["said"] = ([frame.city.tolist(), frame.n.sum(), int(frame["count"].sum()), frame.some.isna().tolist(),
                  str(frame.day.iloc[3].date()), int(loaded.loc[2:]["n"].sum().compute())])
del loaded
`), [['Linz', null, 'Graz', 'Wien'], 6, 10, [false, true, true, false], '2026-01-02', 3])
  await assert.rejects(publishDataset(client, 'mine', parts), gpubufd.ExistsError)
  await publishDataset(client, 'mine', parts.slice(1), { replace: true })
  assert.equal(await python('found["said"] = len(gd.load("mine"))'), 2)
  assert.equal((await names()).length, 4) // the manifest, a partition, schema and lease

  const before = await names()
  await assert.rejects(publishDataset(client, 'other', [parts[0], { city: ['x'] }]), /partitions have different columns/)
  await assert.rejects(publishDataset(client, 'other', []), /there are no tables/)
  assert.deepEqual(await names(), before)
  await python('gd.delete("mine")')
  assert.deepEqual(await names(), [])
})

test('what is no collection', { skip }, async () => {
  await client.put('plain', Float64Array.of(1))
  await assert.rejects(getDataset(client, 'plain'), /"plain" is not a publication of Dask's, but array/)
  await client.put('text', Buffer.from('{"gpubufd.dask": 9, "partitions": []}'), { as: 'bytes' })
  await assert.rejects(getDataset(client, 'text'), /format 9, expected 1/)
  await client.delete(['plain', 'text'])
})
