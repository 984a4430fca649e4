// The JavaScript of @rapidsai/cuda and @rapidsai/cudf, of the packages in $GPUBUF_RAPIDS. Their addons want a GPU: these
// stand-ins have the names that their declarations give, and the checks of their sources in C++ and of libcudf.

import Module, { createRequire } from 'node:module'
import path from 'node:path'

const require = createRequire(path.join(process.env.GPUBUF_RAPIDS, 'anchor.cjs'))
const apart = require('@rapidsai/cudf/package.json').version.startsWith('22.') // text has its characters in a second child
const isMemory = value => typeof value?.ptr === 'number' && typeof value.byteLength === 'number'
const place = view => view.buffer.ptr + view.byteOffset
const [DICTIONARY, TEXT] = [-1, 5] // apache-arrow's
const copies = []

class Memory {
  constructor (byteLength) {
    Object.assign(this, { byteLength, ptr: 1 << 20, device: 0 })
  }
}

class Column {
  constructor ({ type, data, nullMask, offset = 0, length, nullCount, children = [] }) {
    for (const memory of [data, nullMask]) {
      if (memory != null && !isMemory(memory) && !ArrayBuffer.isView(memory)) throw new TypeError('neither memory nor a buffer')
    }
    if (!children.every(child => child instanceof Column)) throw new TypeError('a child is no column')
    if (type.typeId === TEXT && children.length !== (apart ? 2 : 1)) throw new TypeError(`text with ${children.length} children`)
    if (type.typeId === TEXT && !apart && length && !data) throw new TypeError('text without characters')
    if (type.typeId === DICTIONARY && `${children[0].type}` !== `${type.indices}`) throw new TypeError(`codes of ${children[0].type}`)
    if (nullMask && offset && !(nullCount >= 0)) throw new RangeError('nulls would be counted from the first bit on')
    Object.assign(this, { type, data, mask: nullMask, offset, length, nullCount, children, numChildren: children.length })
  }

  getChild (i) { return this.children[i] }
  cast (type) { return new Column({ ...this, nullMask: this.mask && { ptr: 1 << 20, byteLength: 64 }, offset: 0, type }) }
  dispose () {}
}

class Table {
  constructor ({ columns }) {
    if (!columns.every(column => column instanceof Column)) throw new TypeError('not a column')
  }
}

const device = Object.assign(class Device {}, { numDevices: 1, activeDeviceId: 0 })
const memories = ['DeviceMemory', 'PinnedMemory', 'ManagedMemory', 'IpcMemory', 'MappedGLMemory']
const addons = {
  'rapidsai_core.node': { getCudaDriverVersion: () => ['12'], getComputeCapabilities: () => ['90'] },
  'rapidsai_cuda.node': {
    ...Object.fromEntries(memories.map(name => [name, class extends Memory {}])),
    IpcHandle: class {},
    CUDAArray: class {},
    Device: device,
    DeviceFlags: {},
    Math,
    driver: {},
    runtime: {
      cudaMemcpy: (to, from, bytes) => copies.push({ to: place(to), from: place(from), bytes }),
      cudaMemset: () => {}
    }
  },
  'rapidsai_rmm.node': { DeviceBuffer: class extends Memory {}, MemoryResource: class {} },
  'rapidsai_cudf.node': { Column, Table, Scalar: class {}, GroupBy: class {}, findCommonType: () => {} }
}
const load = Module._load
Module._load = (name, ...rest) => name === 'bindings' ? name => ({ init: () => addons[name] }) : load(name, ...rest)

export const cuda = Object.assign({ copies }, require('@rapidsai/cuda'))
export const cudf = require('@rapidsai/cudf')
