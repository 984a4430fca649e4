'use strict'
// The cluster as gpubufd-peer of this machine knows it, asked at the socket that the peer has by its option --query.
// The names themselves are opened by client.open() as any others: the peer fetches what is elsewhere.

const net = require('node:net')
const { fromKind } = require('./errors.cjs')
const { checkSignal, optionsOf } = require('./requests.cjs')

const SOCKET = '/run/gpubufd-peer/peer.sock'
const ANSWER_BYTES = 64 << 20 // an answer is shorter

/** Each part of the answer within the timeout. */
async function exchange (question, { path, timeout, signal }) {
  const connection = net.connect({ path, signal })
  const parts = []
  let bytes = 0
  connection.setTimeout(timeout, () => connection.destroy(new Error(`no answer came in ${timeout} ms`)))
  connection.write(JSON.stringify(question) + '\n')
  for await (const part of connection) {
    parts.push(part)
    bytes += part.length
    if (part.at(-1) === 0x0a) return Buffer.concat(parts).toString()
    if (bytes > ANSWER_BYTES) break
  }
  throw new Error('it has hung up')
}

/** An answer without what it is to have is a ProtocolError. */
function sensible (read) {
  try {
    return read()
  } catch (error) {
    throw fromKind('protocol', `the answer of gpubufd-peer makes no sense: ${error.message}`)
  }
}

async function ask (options, question) {
  const { socket, timeout = 30_000, signal } = optionsOf(options, ['socket', 'timeout', 'signal'])
  const path = socket || process.env.GPUBUFD_PEER_SOCKET || SOCKET
  if (typeof path !== 'string') throw new TypeError('socket is not a string')
  if (typeof timeout !== 'number') throw new TypeError('timeout is not a number')
  if (!(timeout > 0 && timeout < 2 ** 31)) throw new RangeError(`timeout is ${timeout}, not some milliseconds`)
  checkSignal(signal)
  signal?.throwIfAborted()
  const text = await exchange(question, { path, timeout, signal }).catch(error => {
    signal?.throwIfAborted()
    const hint = error.code === 'EACCES'
      ? 'are you in the group of its socket, gpubufd?'
      : 'does it run, with --query? $GPUBUFD_PEER_SOCKET names its socket'
    throw fromKind('connect', `cannot ask gpubufd-peer at ${path}: ${error.message}; ${hint}`)
  })
  const answer = sensible(() => JSON.parse(text))
  const error = sensible(() => answer.error && { kind: String(answer.error.kind), message: String(answer.error.message) })
  if (error) throw fromKind(error.kind, error.message)
  return answer
}

/** The members of an answer that are known here, all of them there: a later peer may tell more. */
function record (told, members) {
  return Object.fromEntries(members.map(member => {
    if (told[member] === undefined) throw new TypeError(`"${member}" is missing`)
    return [member, told[member]]
  }))
}

function placeOf (told) {
  const place = record(told, ['node', 'origin', 'version', 'bytes', 'since'])
  const reached = told.host === undefined ? {} : record(told, ['host', 'port'])
  return { ...place, ...reached, isCopy: place.node !== place.origin }
}

/** The machines that have the name, this one first. NotFoundError: none has it. */
async function where (name, options) {
  if (typeof name !== 'string') throw new TypeError('the name is not a string')
  const answer = await ask(options, { method: 'where', name })
  return sensible(() => Object.assign(answer.places.map(placeOf), answer.why === undefined ? {} : { why: answer.why }))
}

/** The names of the cluster that begin with `prefix`, in their order. */
async function list (prefix = '', options = undefined) {
  if (typeof prefix !== 'string') throw new TypeError('the prefix is not a string')
  const found = []
  let after
  do {
    const answer = await ask(options, { method: 'list', prefix, after })
    sensible(() => found.push(...answer.names.map(
      told => record(told, ['name', 'node', 'version', 'bytes', 'since', 'copies']))))
    after = answer.after
  } while (after !== undefined)
  return found
}

/** The other machines of the cluster, in the order of their names. */
async function peers (options) {
  const answer = await ask(options, { method: 'peers' })
  return sensible(() => answer.peers.map(told => record(told, ['node', 'host', 'port'])))
    .sort((one, other) => one.node < other.node ? -1 : 1)
}

/** The peer's figures by their names in docs/METRICS.md, without `gpubufd_peer_`; those with labels by kind. */
async function stats (options) {
  const answer = await ask(options, { method: 'metrics' })
  return sensible(() => Object.fromEntries(answer.families.map(({ name, samples }) => [
    name.replace(/^gpubufd_peer_/, ''),
    samples.length && !samples[0].labels
      ? samples[0].value
      : Object.fromEntries(samples.map(({ labels, value }) => [labels.kind, value]))
  ])))
}

module.exports = { where, list, peers, stats }
