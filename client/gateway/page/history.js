// History since the page was opened: counts and bytes by the second, for an hour, and the last
// events of the kinds that people ask about.

export const KINDS = ['spilled', 'evicted', 'restored', 'deleted', 'sealed', 'withdrawn']
const HOUR = 3600
const RECENT = 100
const STEPS = 120

/** How much of each device was used, by steps; from before the page was opened, too, as the gateway tells it. */
export class Past {
  constructor () {
    this.step = 5000
    this.devices = new Map() // id: Map of the step's number: bytes
  }

  /** The answer of /api/history. */
  take ({ now_ms: now, step_ms: step, used }) {
    this.step = step
    this.devices.clear()
    const last = Math.floor(now / step)
    for (const [id, values] of Object.entries(used)) {
      const steps = values.map((bytes, i) => [last - values.length + 1 + i, bytes]).filter(([, bytes]) => bytes !== null)
      this.devices.set(id, new Map(steps))
    }
  }

  note (id, used, now) {
    if (!this.devices.has(id)) this.devices.set(id, new Map())
    const steps = this.devices.get(id)
    const step = Math.floor(now / this.step)
    steps.set(step, used)
    for (const old of steps.keys()) {
      if (old > step - STEPS) break
      steps.delete(old)
    }
  }

  /** The last ten minutes of a device, oldest first; null where nothing is known. */
  of (id, now) {
    const steps = this.devices.get(id)
    const last = Math.floor(now / this.step)
    return Array.from({ length: STEPS }, (_, i) => steps?.get(last - STEPS + 1 + i) ?? null)
  }
}

export class History {
  constructor (now) {
    this.since = now
    this.recent = []
    this.changes = 0
    this.seconds = new Float64Array(HOUR).fill(-1) // which second a place holds
    this.counts = Object.fromEntries(KINDS.map(kind => [kind, new Uint32Array(HOUR)]))
    this.bytes = Object.fromEntries(KINDS.map(kind => [kind, new Float64Array(HOUR)]))
  }

  add (kind, object, now) {
    if (!(kind in this.counts)) return
    const second = Math.floor(now / 1000)
    const place = second % HOUR
    if (this.seconds[place] !== second) this.#forget(place, second)
    this.counts[kind][place]++
    this.bytes[kind][place] += object.bytes ?? 0
    this.changes++
    if (kind === 'sealed') return
    this.recent.push({
      kind, at: now, name: object.name, bytes: object.bytes, device: object.device
    })
    if (this.recent.length > RECENT) this.recent.shift()
  }

  #forget (place, second) {
    this.seconds[place] = second
    for (const kind of KINDS) this.counts[kind][place] = this.bytes[kind][place] = 0
  }

  /** The last `span` seconds in `parts` bins: for each kind its counts, its sum and its bytes. */
  bins (now, span, parts) {
    const width = span / parts
    // Bins begin at multiples of their width, so that bars move on as a whole.
    const end = Math.ceil((Math.floor(now / 1000) + 1) / width) * width
    const start = end - span
    const result = { start: start * 1000, width: width * 1000, kinds: {} }
    for (const kind of KINDS) {
      const counts = new Array(parts).fill(0)
      let count = 0
      let bytes = 0
      for (let place = 0; place < HOUR; place++) {
        const second = this.seconds[place]
        if (second < start || second >= end || !this.counts[kind][place]) continue
        counts[Math.floor((second - start) / width)] += this.counts[kind][place]
        count += this.counts[kind][place]
        bytes += this.bytes[kind][place]
      }
      result.kinds[kind] = { counts, count, bytes }
    }
    return result
  }
}
