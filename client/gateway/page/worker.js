// Everything that takes time: receiving, keeping, sorting and painting. The page itself only shows what
// this sends, at most ten times a second, so that 100 000 objects never keep a key or the pointer waiting.

import { Feed } from './feed.js'
import { History, Past } from './history.js'
import { MemoryMap, markPrivate } from './map.js'
import { Store, kind } from './store.js'

const FRAME = 100 // ms between two frames
const SHOWN = 200 // sessions, and segments of a device, that are listed

const store = new Store()
const history = new History(Date.now())
const past = new Past()
const maps = new Map() // by device
const view = { first: 0, count: 40, span: 600 }
let snapshot = null
let connection = { kind: 'connecting', tries: 0 }
let theme = 'light'
let lostAt = null
let paused = false
let hidden = false // nobody looks
let selected = null // a row
let held = null // who has it leased: { version, holders }
let pointed = null // { device, hit, place } under the pointer or the keyboard's cursor
let complete = false // all rows have come once
let lost = 0
let frames = 0
let timer = null
let next = 0
let feed = null

// ---- what the daemon says ----

const from = {
  state (state) {
    // One loss, however many tries fail after it.
    if (state.kind === 'live') lostAt = null
    else if (state.kind === 'lost') lostAt ??= Date.now()
    connection = { ...state, lostAt }
    schedule()
  },
  snapshot (now) {
    if (snapshot && snapshot.instance !== now.instance) {
      past.devices.clear()
      store.clear()
      selected = pointed = null
      complete = false
      feed.refresh()
    }
    snapshot = now
    markAll()
    store.changes++ // segments lie elsewhere, maybe
    schedule()
  },
  /** The figures of devices and tiers, every second; a snapshot has their segments and the sessions besides. */
  stats ({ devices, tiers, now_ms: at = Date.now() }) {
    for (const { id, used } of devices) past.note(id, used, at)
    for (const { segments, ...figures } of devices) { // here a number
      const device = snapshot?.devices.find(each => each.id === figures.id)
      if (device) Object.assign(device, figures)
    }
    if (snapshot) snapshot.tiers = tiers
    schedule()
  },
  event ({ kind, object, placements, device, seq }) {
    const now = Date.now()
    // Of what is private only that it happened is told.
    history.add(kind, object ?? { device }, now)
    if (object) store.addEvent(kind, object, placements, seq, now)
    schedule()
  },
  gap (missing) {
    lost += missing
  },
  past: told => past.take(told),
  holders (told) {
    held = told
    schedule()
  },
  begin: () => store.beginSweep(),
  page ({ fields, objects, seq }) {
    store.addPage(fields, objects, seq, Date.now())
    schedule()
  },
  end () {
    store.endSweep()
    complete = true
    markAll()
    schedule()
  },
  drop: () => store.dropSweep()
}

// ---- what the page asks ----

const asked = {
  start ({ base, dark }) {
    theme = dark ? 'dark' : 'light'
    feed = new Feed(base, from)
    feed.start()
    setInterval(schedule, 1000) // ages go on when nothing happens
  },
  device ({ device }) {
    maps.set(device, new MemoryMap(device, new OffscreenCanvas(1, 1)))
  },
  gone ({ device }) {
    maps.delete(device)
  },
  size ({ device, width, ratio, lines }) {
    maps.get(device)?.setSize(width, ratio, lines)
    now()
  },
  map ({ device, scale, colour }) {
    const map = maps.get(device)
    if (!map) return
    if (scale !== undefined) map.scale = scale
    if (colour !== undefined) map.colour = colour
    now()
  },
  point ({ device, x, y }) {
    const hit = x === null ? null : maps.get(device)?.at(x, y)
    point(device, hit ?? null, [x, y])
  },
  step ({ device, key }) {
    const map = maps.get(device)
    const mine = pointed?.device === device ? pointed.hit : null
    const piece = map?.step(mine?.piece ?? null, key)
    if (piece) point(device, { piece, row: piece.row, others: 0 })
  },
  view ({ first, count, sort, down, filter, span }) {
    if (first !== undefined) view.first = first
    if (count !== undefined) view.count = count
    if (span !== undefined) view.span = span
    if (sort !== undefined || filter !== undefined) {
      Object.assign(view, { filter: filter ?? view.filter })
      store.setView({ key: sort, down, filter: view.filter })
    }
    now()
  },
  /** By version, or by place in the table. */
  select ({ version, index }) {
    selected = index === undefined ? store.rows.get(version) ?? null : store.ordered()[index] ?? null
    held = null
    feed.choose(selected?.name ?? null)
    now()
  },
  theme ({ dark }) {
    theme = dark ? 'dark' : 'light'
    now()
  },
  pause: ({ on }) => {
    paused = on
    now()
  },
  active ({ on }) {
    hidden = !on
    feed.setActive(on)
    schedule()
  },
  retry: () => feed.retry()
}

self.onmessage = ({ data }) => asked[data.ask]?.(data)

/** Objects that nothing is told of but that they are there. */
function hiddenObjects () {
  if (!snapshot || !complete) return 0
  return Math.max(0, Math.min(snapshot.private_objects ?? 0, snapshot.objects - store.rows.size))
}

/** How much of each segment, and of each device, they take. */
function markAll () {
  if (!snapshot) return
  const some = hiddenObjects() > 0
  const known = new Set()
  if (some) for (const row of store.rows.values()) for (const [segment] of row.extents) known.add(segment)
  for (const device of snapshot.devices) {
    device.private = some ? markPrivate(device.segments, known) : 0
    if (!some) for (const segment of device.segments) segment.private = 0
  }
}

// ---- frames ----

/** Shows the result of a user's action at once, paused or not. */
function now () {
  clearTimeout(timer)
  timer = setTimeout(() => frame(true), 0)
}

function schedule () {
  if (paused || hidden || timer) return
  timer = setTimeout(frame, Math.max(0, next - Date.now()))
}

function frame (at = false) {
  const started = performance.now()
  timer = null
  const moment = Date.now()
  if (!paused || at) send(moment)
  paint(moment)
  // A machine that is busy gets fewer frames, not a queue of them.
  next = moment + Math.max(FRAME, 2 * (performance.now() - started))
}

function send (moment) {
  const order = store.ordered()
  view.first = Math.max(0, Math.min(view.first, order.length - 1))
  const rows = order.slice(view.first, view.first + view.count)
  postMessage({
    tell: 'frame',
    frames: ++frames,
    now: moment,
    connection,
    complete,
    instance: snapshot?.instance,
    version: snapshot?.version,
    total: store.rows.size,
    expected: snapshot?.objects,
    hidden: hiddenObjects(),
    hiddenBytes: (snapshot?.devices ?? []).reduce((sum, device) => sum + device.private, 0),
    sums: store.sums,
    shown: order.length,
    first: view.first,
    rows: rows.map(shown),
    selected: selected && {
      ...shown(selected),
      extents: selected.extents,
      ...(held?.version === selected.version && { holders: held.holders, waits: held.waits })
    },
    selectedAt: selected?.alive ? order.indexOf(selected) : -1,
    devices: devices(),
    tiers: snapshot?.tiers ?? [],
    sessions: sessions(),
    history: { lost, ...history.bins(moment, view.span, 60), since: history.since, recent: history.recent.slice(-20).reverse() }
  })
}

function shown (row) {
  const { natural, lower, sweep, seq, extents, moved, ...told } = row
  return { ...told, kind: kind(row) }
}

function devices () {
  const all = snapshot?.devices ?? []
  return all.map(({ segments = [], ...device }) => ({
    ...device,
    past: past.of(device.id, Date.now()),
    // Eight of the same make are told apart by the end of what they are called by.
    name: all.some(other => other.id !== device.id && other.name === device.name)
      ? `${device.name} …${device.id.slice(-4)}` : device.name,
    objects: store.devices.get(device.id) ?? 0,
    segmentCount: segments.length,
    segmentBytes: segments.reduce((sum, segment) => sum + segment.bytes, 0),
    segments: segments.slice(0, SHOWN).map(segment => ({
      ...segment, objects: maps.get(device.id)?.contents.get(segment.id) ?? 0
    }))
  }))
}

function sessions () {
  if (!snapshot) return null
  const mine = snapshot.sessions.find(each => each.session === snapshot.session)?.pid
  const all = snapshot.sessions.map(each => ({ ...each, own: each.pid === mine }))
  const own = all.filter(each => each.own).length
  return {
    own,
    total: all.length - own,
    listed: all.sort((a, b) => b.bytes - a.bytes || a.session - b.session).slice(0, SHOWN)
  }
}

function paint (moment) {
  if (!snapshot) return
  for (const [id, map] of maps) {
    const device = snapshot.devices.find(each => each.id === id)
    if (!device || !map.width) continue
    if (map.changes !== store.changes || map.laid !== map.scale) {
      const segments = device.segments ?? []
      map.layOut(segments, store.rows.values(), device.capacity)
      map.changes = store.changes
      map.laid = map.scale
      if (pointed?.device === id) pointed.hit = pointed.place ? map.at(...pointed.place) : pointed.hit && map.again(pointed.hit)
    }
    draw(map, moment)
  }
  if (pointed) tellPoint()
}

function draw (map, moment) {
  map.paint(theme, moment, mark(map.device))
  const bitmap = map.canvas.transferToImageBitmap()
  postMessage({ tell: 'map', device: map.device, bitmap }, [bitmap])
}

function mark (device) {
  if (pointed?.device === device && pointed.hit?.row?.alive) return pointed.hit
  return selected?.alive ? { row: selected, piece: null } : null
}

/** `place` is where the pointer is in the map; a cursor of the keyboard's has none, and stays at its object. */
function point (device, hit, place = null) {
  const before = pointed?.device
  pointed = hit ? { device, hit, place } : null
  for (const id of new Set([before, device])) {
    const map = maps.get(id)
    if (map?.width) draw(map, Date.now())
  }
  tellPoint(device)
}

function tellPoint (device = pointed.device) {
  const { piece, row, others, segment, hidden } = pointed?.hit ?? {}
  postMessage({
    tell: 'point',
    device,
    now: Date.now(),
    object: row?.alive ? shown(row) : null,
    piece: piece && { segment: piece.segment, offset: piece.offset, bytes: piece.bytes, at: piece.from },
    segment: segment?.id ?? null,
    hidden: Boolean(hidden),
    others: others ?? 0,
    density: maps.get(device)?.density ?? 0
  })
}
