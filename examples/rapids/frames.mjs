#!/usr/bin/env node
// Node's side of the example in README.md: frames.mjs summary | again | columns | parts

import { tableFromArrays } from 'apache-arrow'
import { connect } from 'gpubufd'
import { getDataset, publishDataset } from 'gpubufd/dask'

const COLUMNS = 24 // of an eighth of the GPU each
const timeout = 60_000
const client = await connect()

/** Sums of a frame of cuDF's, published on the GPU. */
async function summary () {
  const trips = await client.open('rapids/trips', { timeout })
  if (trips.device !== 'host') { // pointers, for kernels and for RAPIDS
    const { dtype, data, offset, length } = trips.column('miles').deviceDescriptor()
    console.log(`miles: ${length} of ${dtype} from ${offset} on, at 0x${data.ptr.toString(16)} of ${data.uuid}`)
  }
  const sums = {}
  for (const { city, miles } of await trips.toHost()) { // an Arrow table, copied to the host
    if (city !== null && miles > 0) sums[city] = (sums[city] ?? 0) + miles
  }
  const part = await client.open('rapids/trips/20-40')
  const { miles } = (await part.toHost()).get(4) // row 24, which is null
  console.log(`Node: rows 20 to 40 are ${part.numRows}, miles of row 24: ${miles}`)
  await client.put('rapids/by-city', tableFromArrays({ city: Object.keys(sums), miles: Float64Array.from(Object.values(sums)) }),
    { replace: true })
  console.log('Node: rapids/by-city', sums)
  trips.release()
  part.release()
}

/** The same object in another Node. */
async function again () {
  const byCity = await client.open('rapids/by-city', { timeout })
  console.log(`another Node, on ${byCity.device}:`, (await byCity.toHost()).toArray().map(String).join(' '))
  byCity.release()
}

/** Reads columns that Python makes when they are asked for, and writes as many, in room for eight. */
async function columns () {
  for (const i of [...Array(COLUMNS).keys(), 0, 1]) { // the first are not there any more, and are made again
    const column = await client.open(`rapids/columns/${i}`, { timeout })
    const values = (await column.toHost()).toArray()
    column.release()
    if (!values.every((value, k) => value === k + i)) throw new Error(`column ${i} is wrong`)
    await client.put(`rapids/doubled/${i}`, values.map(value => 2 * value), { as: 'column', evict: 'drop', replace: true, timeout })
  }
  await client.put('rapids/columns-read', new Uint8Array(1), { replace: true })
  console.log(`Node: read ${COLUMNS + 2} columns, wrote as many; there are`, (await client.list('rapids/columns/')).length, 'and',
    (await client.list('rapids/doubled/')).length)
}

/** A collection of Dask's, and one for Dask. */
async function parts () {
  const collection = await getDataset(client, 'rapids/parts', { timeout })
  const table = await collection.toArrow()
  const riders = table.getChild('riders').toArray()
  console.log(`Node: ${collection.partitions.length} partitions, ${table.numRows} rows, ${riders.reduce((sum, n) => sum + n)} riders`)
  const half = riders.length / 2
  const made = [0, half].map(at => ({ city: [...table.slice(at, at + half).getChild('city')], riders: riders.slice(at, at + half).map(n => 2 * n) }))
  await publishDataset(client, 'rapids/halves', made, { device: collection.partitions[0].device, replace: true })
  await collection.release()
}

const steps = { summary, again, columns, parts }
const step = steps[process.argv[2]]
if (!step) throw new Error(`usage: frames.mjs ${Object.keys(steps).join(' | ')}`)
await step()
client.close()
