// The memory map of one device. Its memory is one long strip, segment after segment, cut into lines like
// text: each pixel stands for the same number of bytes. Pure but for the canvas that it is given.

const HUES = { // told apart by colour-blind people too (after Okabe and Ito); object's, not meaning's
  light: ['#0072b2', '#d55e00', '#009e73', '#cc79a7', '#56b4e9', '#e69f00', '#7a5fb5', '#8a7a3c'],
  dark: ['#3d9be0', '#ee7733', '#1fc796', '#dd8fbd', '#7cc8f5', '#f0b429', '#a08be0', '#bfae5e']
}
const THEMES = {
  light: { faded: '#f0f0ee', retained: '#dcdfe3', stripe: '#c9cdd3', private: '#c3c9d1', net: '#8d97a3', free: '#ffffff', edge: '#ffffff', ink: '#101418', mark: '#101418', page: '#ffffff' },
  dark: { faded: '#23272c', retained: '#33383f', stripe: '#3f454d', private: '#454c55', net: '#78828e', free: '#14171a', edge: '#14171a', ink: '#ffffff', mark: '#ffffff', page: '#14171a' }
}
const LEVELS = 12
const COOL = 3600_000 // idle for an hour: as pale as it gets
const LABELS = 400
const NEAR = 8 // pixels between neighbours, at most

export const LINE = 14 // height of a line of the map, in CSS pixels
export const GAP = 4

const LEASED = 1
const PINNED = 2

const RETAINED = 1
const PRIVATE = 2

function rgb (hex) {
  return [1, 3, 5].map(at => parseInt(hex.slice(at, at + 2), 16))
}

/** As a canvas keeps pixels: little-endian ABGR. */
function pack ([r, g, b]) {
  return (0xff000000 | b << 16 | g << 8 | r) >>> 0
}

const palettes = new Map()
function palette (theme) {
  if (!palettes.has(theme)) {
    const faded = rgb(THEMES[theme].faded)
    palettes.set(theme, HUES[theme].map(hex => {
      const full = rgb(hex)
      return Array.from({ length: LEVELS }, (_, level) => {
        const share = 0.28 + 0.72 * level / (LEVELS - 1)
        return full.map((part, i) => Math.round(faded[i] + share * (part - faded[i])))
      })
    }))
  }
  return palettes.get(theme)
}

/** The longest idle time, in ms, of each level from the warmest on; by the logarithm. */
const LIMITS = Array.from({ length: LEVELS - 1 }, (_, i) => 1000 * Math.expm1((i + 0.5) / (LEVELS - 1) * Math.log1p(COOL / 1000)))

/** 0 for idle an hour or more, LEVELS - 1 for in use or used this second. */
export function warmth (row, now) {
  if (row.leases > 0) return LEVELS - 1
  const idle = now - row.used
  let level = LEVELS - 1
  while (level > 0 && idle > LIMITS[LEVELS - 1 - level]) level--
  return level
}

/** The colours of the legend, palest first. */
export function warmthColours (theme) {
  return palette(theme)[0].map(([r, g, b]) => `rgb(${r} ${g} ${b})`)
}

/** Notes how many bytes of each segment are in private objects, and gives their sum. `known`: the segments that
 *  objects which are told of lie in. Those of a segment have one mode, so it holds private ones alone or none. */
export function markPrivate (segments, known) {
  let sum = 0
  for (const segment of segments) {
    const open = Number.parseInt(segment.domain?.mode, 8) & 4
    segment.private = open || known.has(segment.id) ? 0 : segment.used
    sum += segment.private
  }
  return sum
}

export class MemoryMap {
  constructor (device, canvas) {
    this.device = device
    this.canvas = canvas
    this.scale = 'segments' // or 'device', or the number of a segment
    this.colour = 'object' // or 'level', 'use'
    this.lines = 12
    this.width = 0 // in CSS pixels
    this.ratio = 1
    this.image = null
    this.bases = new Map() // where each segment begins on the strip
    this.segments = []
    this.total = 0
    this.contents = new Map() // how many objects each segment has
    // What lies where, a column for each property: making 100 000 objects ten times a second is dear.
    this.count = 0
    this.rows = []
    this.places = [] // of each, which of its row's extents it is
    this.from = new Float64Array(1024)
    this.to = new Float64Array(1024)
  }

  /** Lays the segments on the strip. `capacity` is the device's. */
  layOut (segments, rows, capacity) {
    let chosen = segments
    if (typeof this.scale === 'number') {
      chosen = segments.filter(segment => segment.id === this.scale)
      if (!chosen.length) {
        this.scale = 'segments' // it has gone
        chosen = segments
      }
    }
    this.segments = [...chosen].sort((a, b) => a.id - b.id)
    this.bases.clear()
    let at = 0
    for (const segment of this.segments) {
      this.bases.set(segment.id, at)
      at += segment.bytes
    }
    this.used = at
    this.total = this.scale === 'device' ? Math.max(at, capacity) : at
    this.count = 0
    this.contents.clear()
    for (const row of rows) this.#place(row)
    this.rows.length = this.places.length = this.count
  }

  #place (row) {
    let last = null
    for (let i = 0; i < row.extents.length; i++) {
      const [segment, offset, bytes] = row.extents[i]
      const base = this.bases.get(segment)
      if (base === undefined || !(bytes > 0)) continue
      if (segment !== last) this.contents.set(segment, (this.contents.get(segment) ?? 0) + 1)
      last = segment
      if (this.count === this.from.length) {
        this.from = grown(this.from)
        this.to = grown(this.to)
      }
      this.rows[this.count] = row
      this.places[this.count] = i
      this.from[this.count] = base + offset
      this.to[this.count++] = base + offset + bytes
    }
  }

  /** One of them as a thing of its own. */
  #piece (i) {
    if (i < 0) return null
    const row = this.rows[i]
    const extent = row.extents[this.places[i]]
    if (!extent) return null // the object has changed, and is placed anew soon
    const [segment, offset, bytes] = extent
    return { row, segment, offset, bytes, from: this.from[i], to: this.to[i] }
  }

  setSize (width, ratio, lines) {
    this.width = width
    this.ratio = ratio
    this.lines = lines
    this.canvas.width = Math.max(1, Math.round(width * ratio))
    this.canvas.height = this.#top(lines - 1) + Math.round(LINE * ratio)
    this.image = null
  }

  /** Pixels of the strip for a byte of it. */
  get density () {
    return this.total ? this.canvas.width * this.lines / this.total : 0
  }

  // ---- painting ----

  paint (theme, now, marked) {
    const { canvas } = this
    const strip = this.#paintStrip(theme, now)
    const context = canvas.getContext('2d')
    const width = canvas.width
    const line = Math.round(LINE * this.ratio)
    this.image ??= context.createImageData(width, canvas.height)
    const pixels = new Uint32Array(this.image.data.buffer)
    const mark = pack(rgb(THEMES[theme].mark))
    const thick = Math.max(1, Math.round(1.5 * this.ratio))
    pixels.fill(0)
    for (let i = 0; i < this.lines; i++) {
      const top = this.#top(i)
      const from = i * width
      const colours = strip.colours.subarray(from, from + width)
      for (let y = 0; y < line; y++) pixels.set(colours, (top + y) * width)
      for (let x = 0; x < width; x++) {
        const flags = strip.flags[from + x]
        if (!flags) continue
        for (let y = 0; y < thick; y++) {
          if (flags & LEASED) pixels[(top + line - 1 - y) * width + x] = mark
          if (flags & PINNED) pixels[(top + y) * width + x] = mark
        }
      }
    }
    this.#hatch(pixels, strip, width, line, theme)
    context.putImageData(this.image, 0, 0)
    this.#write(context, theme, now)
    if (marked) this.#outline(context, theme, marked)
  }

  #top (line) {
    return Math.round(line * (LINE + GAP) * this.ratio)
  }

  /** One line of pixels, as long as the whole strip. */
  #paintStrip (theme, now) {
    const length = this.canvas.width * this.lines
    const { density } = this
    const colours = new Uint32Array(length)
    const flags = new Uint8Array(length)
    const latest = new Float64Array(length)
    const hues = new Uint8Array(length) // 1 and on; 0: none
    const pale = new Uint8Array(length) // in a segment, in no object that is known
    const shades = palette(theme).map(hue => hue.map(pack))
    const colour = THEMES[theme]
    colours.fill(pack(rgb(colour.free)))
    for (const segment of this.segments) {
      const from = this.bases.get(segment.id)
      const [x, end] = reach(from, from + segment.bytes, density, length)
      colours.fill(pack(rgb(colour.retained)), x, end)
      pale.fill(RETAINED, x, end)
      if (!segment.private) continue
      // How much is known, and not where.
      const [, filled] = reach(from, from + segment.private, density, length)
      colours.fill(pack(rgb(colour.private)), x, filled)
      pale.fill(PRIVATE, x, filled)
    }
    const edge = pack(rgb(colour.edge))
    for (let each = 0; each < this.count; each++) {
      const row = this.rows[each]
      const x = first(this.from[each], density, length)
      const end = last(x, this.to[each], density, length)
      if (this.places[each] === 0 && end - x >= 4) part(row, hues, x, end, shades.length)
      const hue = this.#hue(row)
      const shade = shades[hue][warmth(row, now)]
      const mark = (row.leases > 0 ? LEASED : 0) | (row.pinned ? PINNED : 0)
      const time = row.leases > 0 ? now : row.used
      for (let i = x; i < end; i++) {
        // Where several share a pixel, the one used last is seen.
        if (latest[i] > time) continue
        latest[i] = time
        colours[i] = shade
        pale[i] = 0
        flags[i] = mark
        hues[i] = row.hue % shades.length + 1
      }
      if (x > 0 && end - x >= 4) {
        colours[x] = edge
        if (end - x >= 16) colours[x + 1] = edge
      }
    }
    if (density && this.segments.length > 1) {
      const thick = Math.max(1, Math.round(2 * this.ratio))
      for (const segment of this.segments) {
        const from = this.bases.get(segment.id)
        const [x, end] = reach(from, from + segment.bytes, density, length)
        if (from === 0 || end - x < 5 * thick) continue
        colours.fill(pack(rgb(colour.page)), x, x + thick)
        flags.fill(0, x, x + thick)
        pale.fill(0, x, x + thick)
      }
    }
    return { colours, flags, pale }
  }

  #hue (row) {
    return this.colour === 'use' ? 0 : (this.colour === 'level' ? row.level : row.hue) % HUES.light.length
  }

  /** Slanted stripes where a segment has no object, a net where it has private ones: told apart without colour. */
  #hatch (pixels, { pale }, width, line, theme) {
    const stripe = pack(rgb(THEMES[theme].stripe))
    const net = pack(rgb(THEMES[theme].net))
    const period = Math.round(6 * this.ratio)
    for (let i = 0; i < this.lines; i++) {
      const top = this.#top(i)
      for (let x = 0; x < width; x++) {
        const kind = pale[i * width + x]
        if (!kind) continue
        const colour = kind === PRIVATE ? net : stripe
        for (let y = (period - x % period) % period; y < line; y += period) pixels[(top + y) * width + x] = colour
        if (kind !== PRIVATE) continue
        for (let y = x % period; y < line; y += period) pixels[(top + y) * width + x] = colour
      }
    }
  }

  /** Names, where there is room. */
  #write (context, theme, now) {
    const { ratio } = this
    context.font = `${Math.round(10 * ratio)}px system-ui, sans-serif`
    context.textBaseline = 'middle'
    const written = new Set() // aliases lie over each other: one name is enough
    for (let each = 0; each < this.count; each++) {
      const row = this.rows[each]
      const from = this.from[each]
      const to = this.to[each]
      if ((to - from) * this.density < 44 * ratio) continue
      const box = this.#boxes(from, to).reduce((a, b) => (b.width > a.width ? b : a))
      const place = `${box.x} ${box.y}`
      if (box.width < 44 * ratio || written.size > LABELS || written.has(place)) continue
      written.add(place)
      const [r, g, b] = palette(theme)[this.#hue(row)][warmth(row, now)]
      context.fillStyle = r * 0.299 + g * 0.587 + b * 0.114 > 140 ? '#101418' : '#ffffff'
      const text = shorten(context, row.name, box.width - 10 * ratio)
      if (text) context.fillText(text, box.x + 5 * ratio, box.y + box.height / 2 + 0.5 * ratio)
    }
  }

  #outline (context, theme, { row, piece }) {
    context.lineJoin = 'round'
    for (const [segment, offset, bytes] of row.extents) {
      if (!this.bases.has(segment)) continue
      const from = this.bases.get(segment) + offset
      const strong = !piece || (piece.segment === segment && piece.offset === offset)
      for (const box of this.#boxes(from, from + bytes)) {
        for (const [colour, thick] of [[THEMES[theme].page, 4], [THEMES[theme].mark, 2]]) {
          context.strokeStyle = colour
          context.lineWidth = thick * this.ratio
          context.setLineDash(strong ? [] : [3 * this.ratio, 3 * this.ratio])
          context.strokeRect(box.x, box.y, box.width, box.height)
        }
      }
    }
    context.setLineDash([])
  }

  /** Where a range of the strip lies on the canvas, a box for each line that it touches. */
  #boxes (from, to) {
    const width = this.canvas.width
    const [x, end] = reach(from, to, this.density, width * this.lines)
    const boxes = []
    for (let line = Math.floor(x / width); line * width < end && line < this.lines; line++) {
      const left = Math.max(x, line * width)
      const right = Math.min(end, (line + 1) * width)
      boxes.push({
        x: left - line * width, y: this.#top(line), width: right - left, height: Math.round(LINE * this.ratio)
      })
    }
    return boxes
  }

  // ---- finding ----

  /** The piece at a point in CSS pixels; of several the one that is seen. With how many are there. */
  at (x, y) {
    if (!this.total) return null
    const width = this.canvas.width
    const line = Math.min(this.lines - 1, Math.max(0, Math.floor(y / (LINE + GAP))))
    const pixel = line * width + Math.min(width - 1, Math.max(0, Math.floor(x * this.ratio)))
    let found = -1
    let others = -1
    for (let i = 0; i < this.count; i++) {
      const from = first(this.from[i], this.density, width * this.lines)
      if (pixel < from || pixel >= last(from, this.to[i], this.density, width * this.lines)) continue
      others++
      if (found < 0 || later(this.rows[i], this.rows[found])) found = i
    }
    const piece = this.#piece(found)
    if (piece) return { piece, row: piece.row, others }
    const place = pixel / this.density
    const segment = this.segments.find(each => {
      const base = this.bases.get(each.id)
      return place >= base && place < base + each.bytes
    })
    const hidden = segment?.private > place - this.bases.get(segment?.id)
    return { piece: null, row: null, segment: segment ?? null, others: 0, hidden }
  }

  /** Where an earlier hit's object lies in this layout: the same piece, else its first; null if it is not drawn. */
  again ({ row, piece }) {
    let found = null
    for (let i = 0; i < this.count; i++) {
      if (this.rows[i] !== row) continue
      const here = this.#piece(i)
      found ??= here
      if (here?.segment === piece.segment && here.offset === piece.offset) return { piece: here, row, others: 0 }
    }
    return found && { piece: found, row, others: 0 }
  }

  /** The next piece by a key: along the memory, by segment, or to an end. */
  step (from, key) {
    const here = from ? from.from : -1
    const line = this.density ? this.canvas.width / this.density : 0
    const base = from ? this.bases.get(from.segment) : 0
    const after = place => this.#nearest(i => this.from[i] - place)
    const before = place => this.#nearest(i => place - this.from[i])
    switch (key) {
      case 'ArrowRight': return after(here) ?? from
      case 'ArrowLeft': return from ? before(here) ?? from : after(-1)
      case 'ArrowDown': return after(here + line) ?? after(here) ?? from
      case 'ArrowUp': return before(here - line) ?? before(here) ?? after(-1)
      case 'PageDown': return this.#firstOf(this.#segmentAfter(base)) ?? from
      case 'PageUp': return this.#firstOf(this.#segmentBefore(base)) ?? after(-1)
      case 'Home': return after(-1)
      case 'End': return before(this.total)
    }
    return from
  }

  /** The piece of the least distance above 0. */
  #nearest (distance) {
    let found = -1
    let least = Infinity
    for (let i = 0; i < this.count; i++) {
      const far = distance(i)
      if (far > 0 && far < least) {
        found = i
        least = far
      }
    }
    return this.#piece(found)
  }

  /** The segments that have objects, in order. */
  #filled () {
    return this.segments.filter(segment => this.contents.has(segment.id))
  }

  #segmentAfter (base) {
    return this.#filled().find(segment => this.bases.get(segment.id) > base)
  }

  #segmentBefore (base) {
    return this.#filled().reverse().find(segment => this.bases.get(segment.id) < base)
  }

  /** The first piece in a segment. */
  #firstOf (segment) {
    if (!segment) return null
    const base = this.bases.get(segment.id)
    return this.#nearest(i => this.from[i] - base + 1)
  }
}

/** Gives an object another hue if it is that of a neighbour painted before it. So of two neighbours one
 *  always gives way, and the same one in every picture. */
function part (row, hues, x, end, count) {
  let left = 0
  let right = 0
  for (let far = 1; far <= NEAR; far++) {
    left ||= hues[x - far] ?? 0
    right ||= hues[end - 1 + far] ?? 0
  }
  while ([left, right].includes(row.hue % count + 1)) row.hue++
}

function later (a, b) {
  if ((a.leases > 0) !== (b.leases > 0)) return a.leases > 0
  return a.used >= b.used
}

/** First pixel of what begins there. */
function first (from, density, length) {
  return Math.min(length - 1, Math.floor(from * density + 1e-6))
}

/** The pixel after the last of what ends there. Each has a pixel. */
function last (x, to, density, length) {
  return Math.min(length, Math.max(x + 1, Math.floor(to * density + 1e-6)))
}

function reach (from, to, density, length) {
  const x = first(from, density, length)
  return [x, last(x, to, density, length)]
}

function grown (column) {
  const longer = new Float64Array(2 * column.length)
  longer.set(column)
  return longer
}

function shorten (context, text, room) {
  if (context.measureText(text).width <= room) return text
  let low = 0
  let high = text.length
  while (low < high) {
    const middle = (low + high + 1) >> 1
    if (context.measureText(text.slice(0, middle) + '…').width <= room) low = middle
    else high = middle - 1
  }
  return low > 2 ? text.slice(0, low) + '…' : ''
}
