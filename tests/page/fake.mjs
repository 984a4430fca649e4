// A daemon's HTTP side that is none: the page's files, the three addresses that they ask, and as much to
// show as a test wants. It can be told to make things happen, to fall silent, to lose events, to die.

import { createHash } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import http from 'node:http'
import path from 'node:path'
import { fileURLToPath } from 'node:url'

export const PAGE = fileURLToPath(new URL('../../client/gateway/page/', import.meta.url))
const TYPES = { '.html': 'text/html; charset=utf-8', '.css': 'text/css', '.js': 'text/javascript', '.svg': 'image/svg+xml' }
const PROSPECTS = { spill: 'spills', drop: 'drops', keep: 'stays' }
const FIELDS = ['name', 'version', 'bytes', 'tier', 'device', 'uid', 'mode', 'leases', 'pinned', 'evict', 'when_short', 'age_ms', 'idle_ms', 'placements', 'cached', 'parked', 'live']
const MIB = 1 << 20
const TABLES = ['sales', 'weather', 'embeddings', 'flights', 'model/weights', 'features', 'tmp']
const COLUMNS = ['price', 'quantity', 'temperature', 'delay', 'origin', 'layer', 'vector', 'mask', 'key']

/** Numbers that look random and are the same every time. */
export function random (seed) {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let t = Math.imul(state ^ (state >>> 15), 1 | state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32
  }
}

export class FakeDaemon {
  constructor ({ devices = 1, capacity = 8 * 1024 * MIB } = {}) {
    this.instance = createHash('sha256').update(String(Math.random())).digest('hex').slice(0, 32)
    this.version = '0.1.0'
    this.seq = 0
    this.nextVersion = 1
    this.nextSegment = 1
    this.objects = new Map() // by version
    this.privates = 0 // objects that are not told of
    this.sessions = [901, 902].map(session => ({ session, pid: 3, uid: 990, client: 'gpubufd-gateway', leases: 0, cached: 0, bytes: 0, mapped_bytes: 0 }))
    this.streams = new Set()
    this.told = [] // of late, for those who come back
    this.requests = []
    this.random = random(7)
    this.devices = Array.from({ length: devices }, (_, i) => ({
      id: `GPU-5f1c2d3e-0000-4000-8000-00000000000${i}`,
      name: 'NVIDIA H200',
      capacity,
      segments: [],
      fill: 0,
      retiring: 0
    }))
  }

  // ---- what it holds ----

  segment (device, bytes, domain = {}) {
    const segment = {
      id: this.nextSegment++, bytes, domain: { share: 'fd', uid: 1000, gid: 1000, mode: '0600', ...domain }, state: 'used', filled: 0
    }
    device.segments.push(segment)
    return segment
  }

  /** A sealed object of that many bytes, put where there is room. */
  put (name, bytes, more = {}) {
    const device = more.on ?? this.devices[0]
    let segment = device.segments.findLast(each => each.bytes - each.filled >= bytes)
    segment ??= this.segment(device, Math.max(bytes, more.segment ?? 64 * MIB))
    const object = {
      name, version: this.nextVersion++, bytes, tier: 'device', device: device.id, uid: 1000, mode: '0600', leases: 0, pinned: false,
      evict: 'spill', born: Date.now(), used: Date.now(), placements: [[segment.id, segment.filled, bytes]], ...more
    }
    delete object.on
    delete object.segment
    segment.filled += bytes
    device.fill += bytes
    this.objects.set(object.version, object)
    return object
  }

  /** A sealed object that nobody here is told of: it counts, and its segment is seen. */
  putPrivate (bytes) {
    const [device] = this.devices
    const segment = this.segment(device, Math.ceil(bytes / (2 * MIB)) * 2 * MIB)
    segment.filled = bytes
    device.fill += bytes
    this.privates++
  }

  /** So many objects of all kinds and ages, in segments that grow like the daemon's. */
  fill (count, bytes = null) {
    const now = Date.now()
    for (let i = 0; i < count; i++) {
      const r = this.random
      const table = TABLES[Math.floor(r() * TABLES.length)]
      const idle = Math.floor(r() ** 3 * 7200_000)
      const on = this.devices[i % this.devices.length]
      const size = bytes ?? 256 * Math.ceil(2 ** (4 + r() * 10) / 256 * 16)
      this.put(`${table}/${COLUMNS[Math.floor(r() * COLUMNS.length)]}/${String(i).padStart(6, '0')}`, size, {
        on,
        segment: Math.min(1024 * MIB, 2 * MIB * 2 ** on.segments.length),
        used: now - idle,
        born: now - idle - Math.floor(r() * 3600_000),
        leases: r() < 0.06 ? 1 + Math.floor(r() * 3) : 0,
        pinned: r() < 0.01,
        uid: r() < 0.1 ? 1001 : 1000,
        evict: r() < 0.8 ? 'spill' : r() < 0.5 ? 'drop' : 'keep'
      })
    }
  }

  connectSessions (count) {
    for (let i = 0; i < count; i++) {
      const leases = Math.floor(this.random() * 40)
      this.sessions.push({
        session: i + 1, pid: 4000 + 17 * i, uid: i % 3 ? 1000 : 1001, client: ['python/etl.py', 'node/dashboard', 'gpubufctl', 'train'][i % 4], leases, cached: i % 3, bytes: leases * 3 * MIB, mapped_bytes: leases * 8 * MIB
      })
    }
  }

  // ---- what happens ----

  /** An event, as the daemon tells it. */
  tell (kind, object) {
    const { placements, born, used, live, holders, waits, ...told } = object
    this.send({ seq: ++this.seq, time_ms: Date.now(), kind, object: { ...told, ...(live && { live: true, ...live }), when_short: PROSPECTS[told.evict], created_ms: born, state: 'sealed' }, placements: placements })
  }

  seal (name, bytes, more) {
    for (const object of this.objects.values()) {
      if (object.name === name) this.objects.delete(object.version)
    }
    const object = this.put(name, bytes, more)
    this.tell('sealed', object)
    return object
  }

  remove (object, kind = 'deleted') {
    this.objects.delete(object.version)
    this.tell(kind, object)
  }

  spill (object, tier = 'host') {
    Object.assign(object, { tier, placements: [] })
    this.tell('spilled', object)
  }

  restore (object) {
    const [device] = this.devices
    const segment = this.segment(device, object.bytes)
    segment.filled = object.bytes
    Object.assign(object, { tier: 'device', placements: [[segment.id, 0, object.bytes]], used: Date.now() })
    this.tell('restored', object)
  }

  /** Events without end, `rate` a second, over the objects that there are. */
  churn (rate) {
    let owed = 0
    let last = performance.now()
    const versions = [...this.objects.keys()]
    this.churning = setInterval(() => {
      const now = performance.now()
      owed += (now - last) / 1000 * rate
      last = now
      for (; owed >= 1; owed--) {
        const object = this.objects.get(versions[Math.floor(this.random() * versions.length)])
        if (!object) continue
        const dice = this.random()
        if (dice < 0.45) {
          this.objects.delete(object.version)
          const fresh = { ...object, version: this.nextVersion++, born: Date.now(), used: Date.now() }
          this.objects.set(fresh.version, fresh)
          versions.push(fresh.version)
          this.tell('sealed', fresh)
        } else if (dice < 0.7) this.spill(object)
        else if (dice < 0.95) {
          Object.assign(object, { tier: 'device', used: Date.now() })
          this.tell('restored', object)
        } else this.remove(object, 'evicted')
      }
    }, 10)
  }

  // ---- HTTP ----

  async start (port = 0) {
    this.server = http.createServer((request, response) => this.#answer(request, response))
    await new Promise(resolve => this.server.listen(port, '127.0.0.1', resolve))
    this.port = this.server.address().port
    this.url = `http://127.0.0.1:${this.port}/`
    this.ticking = setInterval(() => this.send(this.figures()), 1000)
    return this
  }

  figures () {
    const devices = this.snapshot().devices.map(device => ({ ...device, segments: device.segments.length }))
    return { seq: this.seq, instance: this.instance, kind: 'stats', devices, tiers: this.tiers() }
  }

  /** As if killed: the port refuses from now on. */
  async stop () {
    clearInterval(this.ticking)
    clearInterval(this.churning)
    this.drop()
    this.server.closeAllConnections?.()
    await new Promise(resolve => this.server.close(resolve))
  }

  /** Ends every stream of events, and with `refuse` lets none in again. */
  drop () {
    for (const stream of this.streams) stream.destroy()
    this.streams.clear()
  }

  async #answer (request, response) {
    const url = new URL(request.url, this.url)
    this.requests.push(url.pathname)
    response.setHeader('Content-Security-Policy', "default-src 'self'")
    response.setHeader('X-Content-Type-Options', 'nosniff')
    response.setHeader('Cache-Control', 'no-store')
    if (url.pathname.startsWith('/api/')) {
      if (this.refusing) return response.writeHead(this.refusing).end('this daemon refuses\n')
      if (url.pathname === '/api/events') return this.#stream(url.searchParams, response)
      if (url.pathname === '/api/history') {
        response.setHeader('Content-Type', 'application/json')
        return response.end(JSON.stringify({ now_ms: Date.now(), step_ms: 5000, used: this.past ?? {} }))
      }
      const body = url.pathname === '/api/snapshot' ? this.snapshot()
        : url.pathname === '/api/objects' ? this.page(url.searchParams)
          : url.pathname === '/api/holders' ? this.whoHolds(url.searchParams.get('name')) : null
      if (!body) return response.writeHead(404).end()
      response.setHeader('Content-Type', 'application/json')
      return response.end(JSON.stringify(body))
    }
    const name = url.pathname === '/' ? 'index.html' : url.pathname.slice(1)
    if (!/^[a-z]+\.[a-z]+$/.test(name)) return response.writeHead(404).end()
    try {
      const file = await readFile(path.join(PAGE, name))
      response.setHeader('Content-Type', TYPES[path.extname(name)])
      response.end(file)
    } catch {
      response.writeHead(404).end()
    }
  }

  snapshot () {
    return {
      seq: this.seq,
      now_ms: Date.now(),
      instance: this.instance,
      version: this.version,
      objects: this.objects.size + this.privates,
      private_objects: this.privates,
      sessions: this.sessions,
      session: 901, // one of the gateway's own
      tiers: this.tiers(),
      devices: this.devices.map(({ id, name, capacity, segments, fill, retiring }) => {
        const held = segments.reduce((sum, each) => sum + each.bytes, 0)
        return {
          id, name, capacity, used: fill, retained: held - fill, pinned_by_clients: retiring, free: capacity - held - retiring, segments: segments.map(({ id, bytes, domain, state, filled }) => ({ id, bytes, used: filled, domain, state }))
        }
      })
    }
  }

  whoHolds (name) {
    const object = [...this.objects.values()].find(each => each.name === name)
    return { version: object?.version ?? 0, holders: object?.holders ?? [], waits: object?.waits }
  }

  tiers () {
    return [['host', 32 * 1024 * MIB], ['disk', 256 * 1024 * MIB]].map(([tier, capacity]) => {
      let used = 0
      for (const object of this.objects.values()) if (object.tier === tier) used += object.bytes
      return { tier, capacity, free: capacity - used, used, clean: 0 }
    })
  }

  /** By version: the cursor is the last one. */
  page (query) {
    const after = Number(query.get('after') ?? 0)
    const limit = Math.min(10000, Number(query.get('limit') ?? 1000))
    const now = Date.now()
    const objects = []
    let cursor = null
    for (const object of this.objects.values()) {
      if (object.version <= after) continue
      if (objects.length === limit) {
        cursor = String(objects.at(-1)[1])
        break
      }
      objects.push([object.name, object.version, object.bytes, object.tier, object.device, object.uid, object.mode, object.leases, object.pinned, object.evict, PROSPECTS[object.evict], now - object.born, now - object.used, object.placements, object.cached ?? 0, object.parked ?? 0, object.live ?? null])
    }
    return { fields: FIELDS, objects, cursor, seq: this.seq }
  }

  // ---- server-sent events ----

  #stream (query, response) {
    response.writeHead(200, { 'Content-Type': 'text/event-stream' }).flushHeaders()
    response.once('close', () => this.streams.delete(response))
    response.gather = Number(query.get('gather') ?? 0)
    this.streams.add(response)
    if (this.silent) return
    if (!query.has('after')) return write(response, this.figures())
    const missed = this.told.filter(message => message.seq > Number(query.get('after')))
    if (missed.length) write(response, missed)
  }

  send (message) {
    if (this.silent) return
    if (message.kind !== 'stats') this.told.push(message)
    if (this.told.length > 20000) this.told.splice(0, 10000)
    for (const stream of this.streams) {
      if (!stream.gather) {
        write(stream, message)
        continue
      }
      if (!stream.gathered) {
        stream.gathered = []
        setTimeout(() => {
          write(stream, stream.gathered)
          stream.gathered = null
        }, stream.gather)
      }
      stream.gathered.push(message)
    }
  }
}

function write (stream, message) {
  stream.write(`data: ${JSON.stringify(message)}\nid: ${[message].flat().at(-1).seq}\n\n`)
}
