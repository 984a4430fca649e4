#!/usr/bin/env node
// The protocol with nothing but Node's own modules: lists objects, describes one, and prints the handle
// of one that is shared by legacy CUDA IPC. With the handle CUDA opens the memory in any process.
//
//   examples/raw.mjs            lists the objects
//   examples/raw.mjs NAME       describes one, and prints its handle if it has one
//
// Other memory travels as descriptors, which Node cannot receive: the package gpubufd can.

import net from 'node:net'

const path = process.env.GPUBUFD_SOCKET ?? '/run/gpubufd/gpubufd.sock'
const daemon = net.connect(path).setEncoding('utf8')
daemon.on('error', error => {
  console.error(`${path}: ${error.message}`)
  process.exit(1)
})

// A reply has the id of its request. Replies come in any order.
const waiting = new Map()
let lastId = 0
let text = ''
daemon.on('data', data => {
  text += data
  for (let end; (end = text.indexOf('\n')) >= 0; text = text.slice(end + 1)) {
    const { id, result, error } = JSON.parse(text.slice(0, end))
    const { resolve, reject } = waiting.get(id) ?? {} // without an id it is a notification
    waiting.delete(id)
    if (error) reject?.(new Error(error.message))
    else resolve?.(result)
  }
})

function call (method, params = {}) {
  return new Promise((resolve, reject) => {
    waiting.set(++lastId, { resolve, reject })
    daemon.write(JSON.stringify({ jsonrpc: '2.0', id: lastId, method, params }) + '\n')
  })
}

async function list () {
  let cursor
  do {
    const page = await call('list', { cursor })
    for (const { name, version, device, bytes } of page.objects) {
      console.log(`${name}\tversion ${version}\t${device}\t${bytes} bytes`)
    }
    cursor = page.cursor
  } while (cursor !== undefined)
}

async function show (name) {
  const { object } = await call('stat', { name })
  console.log(JSON.stringify(object, null, 2))
  if (object.share !== 'ipc') return
  // The lease lasts as long as this connection: a program that uses the memory keeps it open.
  const { segments } = await call('open', { name, segments: 'all' })
  for (const { id, bytes, handle } of segments) {
    const octets = Buffer.from(handle.ipc, 'base64')
    console.log(`segment ${id}: ${bytes} bytes on ${handle.uuid}, handle ${octets.toString('hex')}`)
  }
}

try {
  await call('hello', { protocol: 1, client: 'raw.mjs' })
  const name = process.argv[2]
  await (name === undefined ? list() : show(name))
} catch (error) {
  console.error(error.message)
  process.exitCode = 1
}
daemon.end()
