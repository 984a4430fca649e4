// examples/rapids on the fake driver, with pandas in the place of cuDF: what tests/gpu/rapids_node.py plays on a GPU.

import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import path from 'node:path'
import test from 'node:test'
import { promisify } from 'node:util'
import { PACKAGE, PYTHON, PYTHONPATH, ROOT, arrow, fixtureWithGpu, noGpu, withoutPython } from './harness.mjs'

const skip = noGpu || (arrow ? await withoutPython('pandas, dask.dataframe') : 'apache-arrow is not installed')

test('frames of Python\'s in Node, and back', { skip }, async () => {
  const { daemon, gpu } = await fixtureWithGpu()
  const { stdout } = await promisify(execFile)(PYTHON,
    [path.join(ROOT, 'tests', 'gpu', 'rapids_node.py'), '--node', path.join(PACKAGE, '..'), '--seconds', '600'],
    { env: { ...process.env, ...gpu, GPUBUFD_SOCKET: daemon.socket, PYTHONPATH } }).catch(error => error)
  assert.match(stdout, /^9 passed, 0 failed$/m)
})
