'use strict'
// Collections that gpubufd.dask publishes, and tables that it loads. A collection is a manifest under its name and
// objects below it, which client/python/gpubufd/dask.py describes; each reader has a lease on `…/lease`.

const os = require('node:os')
const { randomBytes } = require('node:crypto')
const { classes, fromKind } = require('./errors.cjs')
const { optionsOf } = require('./requests.cjs')
const { parseDtype } = require('./dtypes.cjs')
const { getArrow } = require('./to-arrow.cjs')

const FORMAT = 1
const TRIES = 10 // while the collection is replaced again and again
const LOCK_MS = 30_000 // how long, at most, one writer locks a name's manifests
const PEER_MS = 60_000 // how long gpubufd-peer has to bring a partition
const PUBLICATION = /\/(dask-[0-9a-f]{16})\/[^/]+$/

const small = (client, signal) => client.stats({ signal }).then(({ devices }) => devices.some(({ id }) => id === 'host') ? 'host' : undefined)

async function readManifest (client, name, options) {
  const object = await client.open(name, options)
  try {
    const text = object.kind !== 'bytes' || object.device !== 'host' ? '' : Buffer.from(object.bytes).toString()
    const manifest = text.startsWith('{') ? JSON.parse(text) : {}
    if (manifest['gpubufd.dask'] === FORMAT && Array.isArray(manifest.partitions)) return manifest
    throw manifest['gpubufd.dask'] === undefined
      ? fromKind('invalid', `"${name}" is not a publication of Dask's, but ${object.kind}`)
      : fromKind('unsupported', `"${name}" has a manifest of format ${manifest['gpubufd.dask']}, expected ${FORMAT}`)
  } finally {
    object.release()
  }
}

/** The manifest, or undefined if the name has none. */
const manifestOf = (client, name, signal) => readManifest(client, name, { signal }).catch(error => {
  if (error instanceof classes.NotFoundError) return undefined
  throw error
})

/** A published Dask DataFrame, Series or Array. It keeps the partitions from being deleted until release(). */
class Dataset {
  #client
  #manifest
  #lease
  #open = new Map() // partitions that toArrow() has shown

  constructor (client, manifest, lease) {
    this.#client = client
    this.#manifest = manifest
    this.#lease = lease
    this.name = manifest.name
    this.kind = manifest.series ? 'series' : manifest.kind
    this.columnNames = (manifest.columns ?? []).map(({ name }) => name)
    this.divisions = manifest.divisions ?? undefined
    this.partitions = manifest.partitions.map(({ name, host, device, bytes, rows, shape }) =>
      ({ name, host, device, bytes, ...(rows === undefined ? { shape } : { rows }) }))
    this.numRows = this.partitions.reduce((sum, { rows }) => sum + rows, 0)
    if (manifest.kind === 'array') this.numRows = undefined
  }

  /** Opens partition `i`: a Table with the columns and perhaps the index, or an NDArray. The caller releases it. */
  async open (i, options) {
    const entry = this.#manifest.partitions[i]
    if (!entry) throw new RangeError(`partition ${i} is not one of ${this.partitions.length}`)
    if (this.released) throw fromKind('stale', `"${this.name}" is released`)
    const here = [entry, ...(entry.replicas ?? [])].some(({ instance }) => instance === this.#client.instance)
    const byPeer = this.#manifest.scope === 'cluster'
    try {
      return await this.#client.open(entry.name, here || !byPeer ? options : { timeout: PEER_MS, ...options })
    } catch (error) {
      if (here || !(error instanceof classes.NotFoundError || error instanceof classes.TimeoutError)) throw error
      const brings = byPeer ? ', and gpubufd-peer has not brought it' : ''
      throw fromKind('not_found',
        `partition ${i} of "${this.name}" is in the daemon ${entry.instance} of host "${entry.host}"${brings}`)
    }
  }

  /** The partitions, one after the other, each released when the next one is asked for. */
  async * [Symbol.asyncIterator] () {
    for (let i = 0; i < this.partitions.length; i++) {
      const object = await this.open(i)
      try {
        yield object
      } finally {
        object.release()
      }
    }
  }

  /** All rows as one Arrow table over the shared memory, valid until release(); copies of what is on a GPU. */
  async toArrow (options) {
    const { columns = this.columnNames, signal } = optionsOf(options, ['columns', 'signal'])
    if (this.#manifest.kind !== 'frame') throw fromKind('unsupported', `"${this.name}" is an array: open() its blocks`)
    const tables = []
    for (let i = 0; i < this.partitions.length; i++) {
      const own = this.#open.get(i) ?? await this.open(i, { signal })
      this.#open.set(i, own)
      const whole = own.device === 'host' ? own.toArrow() : await own.toHost({ signal })
      tables.push(whole.select(columns))
    }
    const [first, ...rest] = tables
    return first ? first.concat(...rest) : new (getArrow().Table)()
  }

  get released () { return this.#lease.released }

  /** Gives the collection back. If it has been replaced and nobody else reads it, its partitions are deleted. */
  async release () {
    if (this.released) return
    for (const object of this.#open.values()) object.release()
    this.#open.clear()
    this.#lease.release()
    await sweep(this.#client, this.name).catch(() => {}) // somebody else will
  }

  async [Symbol.asyncDispose ?? Symbol.for('nodejs.asyncDispose')] () { await this.release() }
}

/**
 * The collection that a Dask program published under `name` by gpubufd.dask.publish(). With `timeout` it waits for the name. Nothing
 * is opened but its manifest and a lease.
 */
async function getDataset (client, name, options) {
  const { timeout, signal } = optionsOf(options, ['timeout', 'signal'])
  for (let tries = 1; ; tries++) {
    const manifest = await readManifest(client, name, { timeout, signal })
    try {
      const lease = await client.open(`${name}/${manifest.publication}/lease`, { signal })
      const now = await manifestOf(client, name, signal)
      if (now?.publication === manifest.publication) return new Dataset(client, manifest, lease)
      lease.release()
      throw fromKind('stale', `"${name}" has been replaced or deleted`)
    } catch (error) {
      const passing = error instanceof classes.NotFoundError || error instanceof classes.StaleError
      if (!passing || tries === TRIES) throw error
    }
  }
}

// ---- publishing ----

/** The objects of each publication below a name. */
async function publications (client, name) {
  const found = new Map()
  for (const info of await client.list(`${name}/`)) {
    const [, id] = PUBLICATION.exec(info.name) ?? []
    if (id && info.name === `${name}/${id}/${info.name.split('/').at(-1)}`) found.set(id, [...(found.get(id) ?? []), info])
  }
  return found
}

async function purge (client, objects) {
  // The lease goes first: whoever still puts partitions looks for it.
  const names = objects.map(({ name }) => name).sort((one, other) => other.endsWith('/lease') - one.endsWith('/lease'))
  for (const name of names) {
    await client.delete([name]).catch(error => {
      if (!(error instanceof classes.NotFoundError || error instanceof classes.DeniedError)) throw error
    })
  }
}

/** Deletes the publications that nobody makes or reads, except for the current one. */
async function sweep (client, name) {
  const found = await publications(client, name) // before the manifest: a later publication is not among them
  const current = await manifestOf(client, name)
  for (const [id, objects] of found) {
    const lease = objects.find(info => info.name.endsWith('/lease'))
    if (id !== current?.publication && !lease?.leases) await purge(client, objects)
  }
}

/** The name in pandas of the dtype of a column that may have nulls. */
function pandasDtype (dtype, nulls) {
  const { name, zone } = parseDtype(dtype)
  if (/^u?int(8|16|32|64)$/.test(name)) return nulls ? name.replace('i', 'I').replace('u', 'U') : name
  if (name === 'bool' || name === 'bool8') return nulls ? 'boolean' : 'bool'
  if (name === 'float32' || name === 'float64') return name
  if (name === 'timestamp') return `datetime64[ns${zone ? `, ${zone}` : ''}]`
  return name === 'duration' ? 'timedelta64[ns]' : 'object'
}

/** Columns as the manifest has them, of all partitions' tables. */
function described (tables) {
  const [{ schema }] = tables
  for (const table of tables) {
    const other = table.schema.map(({ name, dtype }) => `${name}: ${dtype}`)
    if (schema.map(({ name, dtype }) => `${name}: ${dtype}`).join() !== other.join()) {
      throw new TypeError(`partitions have different columns: ${table.name} has ${other.join(', ')}`)
    }
  }
  return schema.map(({ name, dtype }, i) => {
    const nulls = tables.some(table => table.columnAt(i).nullCount !== 0)
    const told = { name, label: name }
    if (dtype !== 'dictionary') return { ...told, dtype: pandasDtype(dtype, nulls) }
    const categories = pandasDtype(tables[0].columnAt(i).child(1).dtype, false)
    return { ...told, dtype: 'category', categories, ordered: false }
  })
}

async function locked (client, name, device, signal, then) {
  const lock = `${name}/dask-lock`
  let version
  for (const end = Date.now() + 2 * LOCK_MS; version === undefined;) {
    version = await client.put(lock, Buffer.alloc(0), { ttl: LOCK_MS, device, as: 'bytes', signal }).catch(error => {
      if (!(error instanceof classes.ExistsError)) throw error
      if (Date.now() > end) throw fromKind('busy', `other programs have kept "${name}" locked for ${2 * LOCK_MS / 1000} s`)
    })
    if (version === undefined) await new Promise(resolve => setTimeout(resolve, 20))
  }
  try {
    return await then()
  } finally {
    await client.delete(lock, { version }).catch(() => {})
  }
}

/**
 * Publishes tables as a Dask DataFrame of as many partitions, which gpubufd.dask.load() loads in Python. Each is what
 * client.put() takes for a table; all have the same columns. Its index counts rows. The name appears when all
 * partitions are there. ExistsError: the name is taken, and `replace` is not true.
 */
async function publishDataset (client, name, tables, options) {
  const { replace = false, mode, device, evict, signal } = optionsOf(options, ['replace', 'mode', 'device', 'evict', 'signal'])
  await client.connect({ signal })
  if (!replace && await client.has(name, { signal })) throw fromKind('exists', `"${name}" is published already: pass replace: true`)
  const publication = `dask-${randomBytes(8).toString('hex')}`
  const below = part => `${name}/${publication}/${part}`
  const near = await small(client, signal)
  const own = { mode, device: near, replace: true, evict: 'keep', signal }
  const lease = await client.create(below('lease'), { kind: 'array', dtype: 'uint8', shape: [1] }, own)
  const opened = []
  try {
    await lease.write(Uint8Array.of(0))
    await lease.seal({ signal })
    const partitions = []
    let rows = 0
    for await (const table of tables) {
      const part = below(String(partitions.length).padStart(5, '0'))
      await client.put(part, table, { as: 'table', mode, device, evict, replace: true, signal })
      const object = await client.open(part, { signal })
      opened.push(object)
      const info = await client.stat(part, { signal })
      const index = { range: [rows, rows + object.length, 1], label: null }
      rows += object.length
      partitions.push({
        name: part, instance: client.instance, host: os.hostname(), device: info.device, bytes: info.bytes,
        rows: object.length, index
      })
    }
    if (!opened.length) throw new TypeError('there are no tables: a collection has one partition or more')
    const columns = described(opened)
    await client.alias(below('schema'), partitions[0].name, { slice: { offset: 0, length: 0 }, mode, replace: true, signal })
    const known = opened.every(({ length }) => length > 0)
    const divisions = known ? [...partitions.map(({ index }) => index.range[0]), rows - 1] : null
    const manifest = {
      'gpubufd.dask': FORMAT, name, publication, kind: 'frame', mode: mode ?? null, scope: 'local', columns, divisions,
      index: { range: [0, 0, 1], label: null }, partitions
    }
    await locked(client, name, near, signal, async () => {
      const before = await manifestOf(client, name, signal)
      if (before && !replace) throw fromKind('exists', `"${name}" is published already: pass replace: true`)
      manifest.generation = (before?.generation ?? 0) + 1
      await client.put(name, Buffer.from(JSON.stringify(manifest)), { ...own, replace, as: 'bytes' })
    })
  } catch (error) {
    await publications(client, name).then(found => purge(client, found.get(publication) ?? [])).catch(() => {})
    throw error
  } finally {
    for (const object of opened) object.release()
    lease.release()
  }
  await sweep(client, name).catch(() => {})
}

module.exports = { Dataset, getDataset, publishDataset }
