#!/usr/bin/env node
// Shows a layout while Python computes it (layout.py). Each version of its positions is read where it lies: as an array
// of @rapidsai/cuda, which deck.gl draws from the GPU, where that is installed, else by a copy.

import { connect } from 'gpubufd'
import { toBuffer } from 'gpubufd/rapids'

const cuda = await import('@rapidsai/cuda').catch(() => undefined)
const client = await connect()
let nodes, shown = 0

for await (const { version, label } of client.versions('rapids/positions')) {
  const positions = await client.open('rapids/positions', { version }).catch(() => undefined)
  if (!positions) continue // there is a newer one already
  nodes ??= await client.open('rapids/nodes')
  await redraw({ positions: cuda ? await toBuffer(positions, cuda) : (await positions.toHost()).getChildAt(0).toArray() })
  positions.release()
  if (label === 'done') break
}
console.log(`shown ${shown} versions`)
nodes.release()
client.close()

/** In the place of deck.gl: where the nodes are. */
async function redraw ({ positions }) {
  const values = positions.toArray?.() ?? positions // of a buffer on the GPU, a copy
  let [least, most] = [Infinity, -Infinity]
  for (const value of values) [least, most] = [Math.min(least, value), Math.max(most, value)]
  console.log(`${++shown}: ${nodes.numRows} nodes within ${least.toFixed(2)} and ${most.toFixed(2)}`)
}
