'use strict'
// Errors: one class for each kind of failure, made from the library's own list.

const { kinds } = require('./native.cjs')

class GpubufError extends Error {
  constructor (message, kind = 'internal', errno = -32603) {
    super(message)
    this.kind = kind
    this.code = `GPUBUF_E_${kind.toUpperCase()}`
    this.errno = errno
  }
}
Object.defineProperty(GpubufError.prototype, 'name', { value: 'GpubufError', configurable: true })

const classes = { GpubufError }
const byStatus = new Map()
for (const [errno, kind] of Object.entries(kinds)) {
  const name = kind.split('_').map(word => word[0].toUpperCase() + word.slice(1)).join('') + 'Error'
  const type = { [name]: class extends GpubufError {} }[name]
  Object.defineProperty(type.prototype, 'name', { value: name, configurable: true })
  classes[name] = type
  byStatus.set(Number(errno), { type, kind })
}

const START = 'start one (gpubufd --supervise, or systemctl start gpubufd), or set GPUBUFD_SOCKET to where one listens'
const NPX = '`npx gpubufd serve` in another terminal starts one, and connect({ socket }) finds one that listens elsewhere'

/** The error of a negative status of the library. */
function fromStatus (status, message) {
  const known = byStatus.get(status)
  message = message?.replace(START, NPX)
  if (!known) return new GpubufError(message || `error ${status}`, 'unknown', status)
  return new known.type(message || known.kind, known.kind, status)
}

/** The error of a kind, as answers of gpubufd-peer tell it; one that is not known here is "internal". */
function fromKind (kind, message) {
  for (const [status, known] of byStatus) {
    if (known.kind === kind) return fromStatus(status, message)
  }
  return new GpubufError(message)
}

/** This package's error for one that the addon has thrown with a status; any other error itself. */
function translate (error) {
  return typeof error?.status === 'number' ? fromStatus(error.status, error.message) : error
}

module.exports = { classes, fromKind, fromStatus, translate }
