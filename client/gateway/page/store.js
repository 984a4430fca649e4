// Contents of the daemon, as far as this page knows: objects by version (a number no two objects of a
// daemon share), and an order for the table. Pure: no network, no document.

const JITTER = 1500

/** Columns of the table, and what they are sorted by. Ties go by version, so that the order is total. */
const KEYS = {
  name: row => (row.natural ??= natural(row.name)),
  device: row => row.device,
  tier: row => row.tier,
  bytes: row => row.bytes,
  kind: row => kind(row),
  leases: row => row.leases,
  cached: row => row.cached,
  uid: row => row.uid,
  mode: row => row.mode,
  short: row => row.short,
  used: row => -row.used,
  born: row => -row.born
}

/** The kind of an object: sealed, or live, which is written while others read it, maybe as a stream. */
export function kind ({ live }) {
  return !live ? 'sealed' : live.stream ? 'stream' : 'live'
}

/** Sets apart what a filter's words ask for: every word must be in the name. */
export function makeFilter ({ text = '', device = '', tier = '', hold = '' } = {}) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean)
  const holds = {
    leased: row => row.leases > 0,
    pinned: row => row.pinned,
    idle: row => row.leases === 0 && !row.pinned
  }[hold]
  if (!words.length && !device && !tier && !holds) return null
  return row => {
    if (device && row.device !== device) return false
    if (tier && row.tier !== tier) return false
    if (holds && !holds(row)) return false
    if (!words.length) return true
    row.lower ??= row.name.toLowerCase()
    return words.every(word => row.lower.includes(word))
  }
}

export class Store {
  constructor () {
    this.rows = new Map() // by version
    this.current = new Map() // the version of each name
    this.changes = 0 // grows with everything that the map or the table could show
    this.tombs = null // while sweeping: what has gone, and when by the daemon's count
    this.sweeping = 0
    this.sweeps = 0
    this.key = 'name'
    this.down = false
    this.filter = null
    this.order = []
    this.touched = [] // rows whose place in the order is to be found again; they are marked `moved`
    this.reorder = false
    this.sums = { bytes: 0, leases: 0, cached: 0 }
    this.devices = new Map() // how many rows each has
  }

  // ---- what the daemon says ----

  /** Rows of /api/objects begin to come: what none of them brings is gone at the end. */
  beginSweep () {
    this.sweeping = ++this.sweeps
    this.tombs = new Map()
  }

  /** One page of rows. `fields` names the members of each. `now`: when it was received. */
  addPage (fields, objects, seq, now) {
    const at = Object.fromEntries(fields.map((field, index) => [field, index]))
    for (const values of objects) {
      const version = values[at.version]
      const known = this.rows.get(version)
      if (known) known.sweep = this.sweeping
      if (known?.seq > seq || this.tombs?.get(version) > seq) continue
      this.#put({
        version,
        name: values[at.name],
        bytes: values[at.bytes],
        tier: values[at.tier],
        device: values[at.device],
        uid: values[at.uid],
        mode: values[at.mode],
        leases: values[at.leases],
        cached: values[at.cached],
        parked: values[at.parked],
        live: values[at.live],
        pinned: Boolean(values[at.pinned]),
        evict: values[at.evict],
        short: values[at.pinned] ? 'pinned' : values[at.when_short],
        born: now - values[at.age_ms],
        used: now - values[at.idle_ms],
        extents: values[at.placements] ?? [],
        seq
      }, known, now)
    }
  }

  /** All rows have come. */
  endSweep () {
    for (const row of this.rows.values()) {
      if (row.sweep !== this.sweeping) this.#remove(row)
    }
    this.sweeping = 0
    this.tombs = null
  }

  /** Rows stopped coming: what was not told stays. */
  dropSweep () {
    this.sweeping = 0
    this.tombs = null
  }

  /** An event of the daemon's, with where the object lies now. */
  addEvent (kind, object, placements, seq, now) {
    const known = this.rows.get(object.version)
    if (kind === 'deleted' || kind === 'evicted' || kind === 'withdrawn') {
      this.tombs?.set(object.version, seq)
      if (known) this.#remove(known)
      return
    }
    if (kind !== 'sealed' && kind !== 'spilled' && kind !== 'restored') return
    if (known?.seq >= seq) return
    const row = {
      version: object.version,
      name: object.name,
      bytes: object.bytes,
      tier: object.tier ?? known?.tier,
      device: object.device ?? known?.device,
      uid: object.uid ?? known?.uid,
      mode: object.mode ?? known?.mode,
      leases: object.leases ?? known?.leases ?? 0,
      cached: object.cached ?? 0,
      parked: object.parked ?? 0,
      live: object.live ? { generation: object.generation, writers: object.writers, stream: object.stream } : null,
      pinned: Boolean(object.pinned ?? known?.pinned),
      evict: object.evict ?? known?.evict,
      short: object.pinned ? 'pinned' : object.when_short ?? known?.short,
      born: known?.born ?? now,
      used: kind === 'spilled' ? known?.used ?? now : now,
      extents: placements ?? [],
      seq
    }
    const before = this.current.get(row.name)
    if (before < row.version) this.#remove(this.rows.get(before))
    this.#put(row, known, now)
  }

  /** Another daemon: nothing of before is true. */
  clear () {
    this.rows.clear()
    this.current.clear()
    this.touched = []
    this.order = []
    this.sums = { bytes: 0, leases: 0, cached: 0 }
    this.devices.clear()
    this.dropSweep()
    this.changes++
  }

  #put (row, known, now) {
    row.sweep = this.sweeping
    row.rate = rate(known, row, now)
    row.rated = now
    if (known) {
      this.#count(known, -1)
      // Told as ages, times come out a little different each time; that is no change.
      for (const time of ['used', 'born']) {
        if (Math.abs(known[time] - row[time]) < JITTER) row[time] = known[time]
      }
      // A row keeps its identity: the order and the selection refer to it.
      const moves = !same(known, row)
      const rearranged = moves || known.used !== row.used
      Object.assign(known, row)
      if (rearranged) this.#touch(known)
      if (moves) this.changes++
      row = known
    } else {
      row.hue = hash(row.name)
      row.level = hash(row.name.split('/', 1)[0])
      row.alive = true
      row.moved = false
      this.rows.set(row.version, row)
      this.#touch(row)
      this.changes++
    }
    this.#count(row, 1)
    this.current.set(row.name, row.version)
  }

  #remove (row) {
    if (!row?.alive) return
    row.alive = false
    this.rows.delete(row.version)
    if (this.current.get(row.name) === row.version) this.current.delete(row.name)
    this.#count(row, -1)
    this.#touch(row)
    this.changes++
  }

  #touch (row) {
    if (row.moved) return
    row.moved = true
    this.touched.push(row)
  }

  #count (row, sign) {
    this.devices.set(row.device, (this.devices.get(row.device) ?? 0) + sign)
    this.sums.bytes += sign * row.bytes
    this.sums.leases += sign * row.leases
    this.sums.cached += sign * row.cached
  }

  // ---- the table ----

  setView ({ key = this.key, down = this.down, filter = {} }) {
    this.key = key in KEYS ? key : 'name'
    this.down = Boolean(down)
    this.filter = makeFilter(filter)
    this.reorder = true
  }

  /** The rows that pass the filter, in order. Changed rows are sorted and merged into the others, so
   *  that a few changes among many rows cost one walk and no sort. */
  ordered () {
    const compare = this.#comparison()
    if (this.reorder || this.touched.length > this.rows.size / 4) {
      const all = []
      for (const row of this.rows.values()) if (!this.filter || this.filter(row)) all.push(row)
      this.order = all.sort(compare)
    } else if (this.touched.length) {
      const fresh = []
      for (const row of this.touched) {
        if (row.alive && (!this.filter || this.filter(row))) fresh.push(row)
      }
      this.order = merge(this.order, fresh.sort(compare), compare)
    }
    for (const row of this.touched) row.moved = false
    this.reorder = false
    this.touched = []
    return this.order
  }

  #comparison () {
    const value = KEYS[this.key]
    const sign = this.down ? -1 : 1
    return (a, b) => {
      const x = value(a)
      const y = value(b)
      return x < y ? -sign : x > y ? sign : a.version - b.version
    }
  }
}

/** The rows of `order` that have not moved, and those of `fresh` in between. Looking at every row is
 *  what takes time, so only their marks are looked at, and places are found by halving. */
function merge (order, fresh, compare) {
  const kept = order.filter(row => !row.moved)
  const merged = []
  let from = 0
  for (const row of fresh) {
    let low = from
    let high = kept.length
    while (low < high) {
      const middle = (low + high) >> 1
      if (compare(kept[middle], row) < 0) low = middle + 1
      else high = middle
    }
    while (from < low) merged.push(kept[from++])
    merged.push(row)
  }
  if (!merged.length) return kept
  while (from < kept.length) merged.push(kept[from++])
  return merged
}

/** How many frames a second its writer has published since the object was last told of; null: none, or not known. */
function rate (known, { live }, now) {
  const before = known?.live
  if (!live?.stream?.writer || before?.stream?.writer !== live.stream.writer || before.generation !== live.generation) return null
  const ms = now - known.rated
  return ms > 0 ? 1000 * (live.stream.frames - before.stream.frames) / ms : known.rate
}

/** Whether nothing that is drawn or sorted by has changed, the time of use aside. */
function same (a, b) {
  return a.bytes === b.bytes && a.tier === b.tier && a.device === b.device && a.leases === b.leases && a.cached === b.cached &&
    a.pinned === b.pinned && a.name === b.name && a.mode === b.mode && a.uid === b.uid &&
    a.evict === b.evict && a.short === b.short && kind(a) === kind(b) && a.extents.length === b.extents.length &&
    a.extents.every((extent, i) => extent[0] === b.extents[i][0] && extent[1] === b.extents[i][1])
}

/** A name to sort by: "demo/3" comes before "demo/11". */
export function natural (name) {
  return name.replace(/\d+/g, digits => digits.replace(/^0+(?=\d)/, '').padStart(20, '0'))
}

/** FNV-1a: the same name has the same colour everywhere. */
export function hash (text) {
  let h = 0x811c9dc5
  for (let i = 0; i < text.length; i++) h = Math.imul(h ^ text.charCodeAt(i), 0x01000193)
  h ^= h >>> 15
  return (Math.imul(h, 0x2c1b3c6d) ^ (h >>> 12)) >>> 0
}
