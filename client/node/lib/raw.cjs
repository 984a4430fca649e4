'use strict'
// A session over a plain socket, to get handles of legacy CUDA IPC, which the C library does not give out. It gets no
// other handles: these are descriptors, which Node cannot receive.

const fs = require('node:fs')
const net = require('node:net')
const path = require('node:path')
const { classes, fromStatus } = require('./errors.cjs')

const SYSTEM_SOCKET = '/run/gpubufd/gpubufd.sock'

/** The path of the daemon's socket, found as the library finds it. */
function socketPath (given) {
  if (given !== undefined) return given
  const { GPUBUFD_SOCKET: said, NVIDIA_DRA_LOCAL_IPC_DIR: claim } = process.env
  if (said) return said
  const shared = claim && path.join(claim, 'gpubufd.sock')
  if (shared && fs.existsSync(shared)) return shared
  if (fs.existsSync(SYSTEM_SOCKET)) return SYSTEM_SOCKET
  const own = process.env.XDG_RUNTIME_DIR || `/tmp/gpubufd-${process.geteuid()}`
  return path.join(own, 'gpubufd.sock')
}

/** Calls one method in a session that ends with the answer. */
function callOnce (socket, method, params, signal) {
  return new Promise((resolve, reject) => {
    const closed = () => reject(new classes.ClosedError('the daemon has closed the connection', 'closed', -3))
    const connection = net.connect(socketPath(socket))
    const stop = () => {
      connection.destroy()
      reject(signal.reason)
    }
    signal?.addEventListener('abort', stop, { once: true })
    connection.once('close', () => signal?.removeEventListener('abort', stop))
    let text = ''
    connection.setEncoding('utf8')
    connection.once('error', error => reject(new classes.ConnectError(error.message, 'connect', -2)))
    connection.once('close', closed)
    connection.on('data', data => {
      text += data
      const end = text.indexOf('\n')
      if (end < 0) return
      connection.destroy()
      const { result, error } = JSON.parse(text.slice(0, end))
      if (error) reject(fromStatus(error.code, error.message))
      else resolve(result)
    })
    connection.write(JSON.stringify({ jsonrpc: '2.0', id: 1, method, params }) + '\n')
  })
}

/** { uuid, handle: 64 octets, byteOffset, byteLength } of the buffer that find(layout) returns. */
async function ipcHandle (socket, name, version, find, signal) {
  const { object: { share } } = await callOnce(socket, 'stat', { name }, signal)
  if (share !== 'ipc') {
    throw new classes.UnsupportedError(
      `"${name}" was not created with share: "ipc", and has no IPC handle`, 'unsupported', -32010)
  }
  const { object, segments } = await callOnce(socket, 'open', { name, version, segments: 'all' }, signal)
  const buffer = find(object.layout)
  const { handle } = segments.find(({ id }) => id === buffer?.segment) ?? {}
  if (!handle?.ipc) {
    throw new classes.UnsupportedError(`"${name}" has no memory with an IPC handle`, 'unsupported', -32010)
  }
  return { uuid: handle.uuid, handle: Buffer.from(handle.ipc, 'base64'), ...buffer }
}

module.exports = { callOnce, ipcHandle }
