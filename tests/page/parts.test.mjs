// Parts of the page's worker, without a browser.

import assert from 'node:assert/strict'
import test from 'node:test'
import { bytes, count, percent, span } from '../../client/gateway/page/format.js'
import { History } from '../../client/gateway/page/history.js'
import { LINE, GAP, MemoryMap, markPrivate, warmth } from '../../client/gateway/page/map.js'
import { Store, natural } from '../../client/gateway/page/store.js'
import { random } from './fake.mjs'

const FIELDS = ['name', 'version', 'bytes', 'tier', 'device', 'uid', 'mode', 'leases', 'pinned', 'evict', 'when_short', 'age_ms', 'idle_ms', 'placements', 'cached', 'parked', 'live']
const row = (name, version, more = {}) => ({
  name, version, bytes: 100, tier: 'device', device: 'host', uid: 0, mode: '0600', leases: 0, pinned: false, evict: 'spill', when_short: 'stays', age_ms: 5000, idle_ms: 5000, placements: [[1, 0, 100]], cached: 0, parked: 0, live: null, ...more
})
const page = (store, rows, seq, now = 1e6) => store.addPage(FIELDS, rows.map(each => FIELDS.map(field => each[field])), seq, now)
const names = store => store.ordered().map(each => `${each.name}#${each.version}`)

function sweep (store, rows, seq, now) {
  store.beginSweep()
  page(store, rows, seq, now)
  store.endSweep()
}

test('a sweep brings what there is and takes what is not', () => {
  const store = new Store()
  sweep(store, [row('b', 2), row('a', 1)], 10)
  assert.deepEqual(names(store), ['a#1', 'b#2'])
  sweep(store, [row('b', 3), row('c', 4)], 20)
  assert.deepEqual(names(store), ['b#3', 'c#4'])
  assert.deepEqual(store.sums, { bytes: 200, leases: 0, cached: 0 })
})

test('of two stories the newer one counts, whichever comes first', () => {
  const store = new Store()
  store.beginSweep()
  store.addEvent('sealed', row('new', 5), [[1, 0, 9]], 12, 1e6)
  store.addEvent('deleted', row('gone', 1), [], 13, 1e6)
  store.addEvent('spilled', row('moved', 2, { tier: 'host' }), [], 14, 1e6)
  // A page that was written before those events, and comes after them.
  page(store, [row('gone', 1), row('moved', 2), row('new', 5, { bytes: 7 }), row('still', 3)], 11)
  store.endSweep()
  assert.deepEqual(names(store), ['moved#2', 'new#5', 'still#3'])
  assert.equal(store.rows.get(2).tier, 'host')
  assert.equal(store.rows.get(5).bytes, 100)
  // An older event about what a newer page told is nothing new.
  store.addEvent('spilled', row('still', 3, { tier: 'host' }), [], 11, 1e6)
  assert.equal(store.rows.get(3).tier, 'device')
})

test('a new version takes the place of the old one', () => {
  const store = new Store()
  sweep(store, [row('a', 1)], 1)
  store.addEvent('sealed', row('a', 2), [], 2, 1e6)
  assert.deepEqual(names(store), ['a#2'])
  store.addEvent('evicted', row('a', 1), [], 3, 1e6)
  assert.deepEqual(names(store), ['a#2'])
})

test('ages that jitter are no change', () => {
  const store = new Store()
  sweep(store, [row('a', 1)], 1, 1e6)
  const { changes } = store
  store.ordered()
  sweep(store, [row('a', 1)], 2, 1e6 + 700)
  assert.equal(store.touched.length, 0)
  assert.equal(store.changes, changes)
  sweep(store, [row('a', 1)], 3, 1e6 + 2000)
  assert.equal(store.touched.length, 1)
})

test('the order is the one that sorting everything gives', () => {
  const next = random(3)
  const below = n => Math.floor(next() * n)
  const value = { name: r => natural(r.name), bytes: r => r.bytes, leases: r => r.leases, used: r => -r.used }
  for (const key of Object.keys(value)) {
    for (const down of [false, true]) {
      const store = new Store()
      const text = below(2) ? '1' : ''
      let version = 0
      store.setView({ key, down, filter: { text } })
      sweep(store, Array.from({ length: 200 }, () => row(`n${below(60)}/${++version}`, version, { bytes: below(20), leases: below(3), idle_ms: below(1e6) })), 0)
      for (let step = 1; step < 300; step++) {
        const known = [...store.rows.values()]
        const one = known[below(known.length)]
        const dice = below(3)
        if (dice === 0 && one) store.addEvent('deleted', one, [], step, 1e6)
        else if (dice === 1 && one) store.addEvent('restored', { ...one, bytes: below(20) }, [], step, 1e6 + below(1e6))
        else store.addEvent('sealed', row(`n${below(60)}/${below(9)}`, ++version, { bytes: below(20) }), [], step, 1e6 + below(1e6))
        if (below(4)) continue
        const expected = [...store.rows.values()].filter(each => each.name.includes(text)).sort((a, b) => {
          const x = value[key](a)
          const y = value[key](b)
          return x === y ? a.version - b.version : (x < y) === down ? 1 : -1
        })
        assert.deepEqual(store.ordered().map(each => each.version), expected.map(each => each.version))
      }
    }
  }
})

test('numbers in names count as numbers', () => {
  const store = new Store()
  sweep(store, ['demo/11', 'demo/3', 'demo/03', 'a9b10', 'a9b9', 'b'].map((name, i) => row(name, i + 1)), 1)
  assert.deepEqual(names(store).map(name => name.split('#')[0]), ['a9b9', 'a9b10', 'b', 'demo/3', 'demo/03', 'demo/11'])
})

test('a filter asks for every word, and for the rest', () => {
  const store = new Store()
  sweep(store, [row('Sales/price', 1), row('sales/quantity', 2, { leases: 1 }), row('price', 3, { pinned: true, tier: 'host', device: 'GPU-1' })], 0)
  const with_ = filter => {
    store.setView({ filter })
    return store.ordered().map(each => each.version)
  }
  assert.deepEqual(with_({ text: 'price' }), [1, 3])
  assert.deepEqual(with_({ text: ' PRICE  sal ' }), [1])
  assert.deepEqual(with_({ hold: 'leased' }), [2])
  assert.deepEqual(with_({ hold: 'pinned' }), [3])
  assert.deepEqual(with_({ hold: 'idle' }), [1])
  assert.deepEqual(with_({ tier: 'host' }), [3])
  assert.deepEqual(with_({ device: 'host', text: 'sales' }), [1, 2])
  assert.deepEqual(with_({}), [3, 1, 2].sort((a, b) => (store.rows.get(a).name < store.rows.get(b).name ? -1 : 1)))
})

/** A map without a picture: what is where. */
function map (segments, rows, { width = 100, lines = 4, scale, capacity = 1000 } = {}) {
  const made = new MemoryMap('host', {})
  if (scale) made.scale = scale
  made.setSize(width, 1, lines)
  made.layOut(segments, rows, capacity)
  return made
}
const placed = (version, extents, more = {}) => ({ version, name: `o${version}`, leases: 0, used: 0, extents, ...more })

test('the map is to scale', () => {
  const segments = [{ id: 7, bytes: 200 }, { id: 3, bytes: 200 }]
  const a = placed(1, [[3, 0, 100]])
  const b = placed(2, [[3, 150, 50], [7, 100, 100]])
  const all = map(segments, [a, b]) // 400 bytes on 400 pixels: segment 3, then segment 7
  const at = (x, line) => all.at(x, line * (LINE + GAP) + 1)
  assert.equal(at(0, 0).row, a)
  assert.equal(at(99, 0).row, a)
  assert.deepEqual([at(0, 1).row, at(0, 1).segment.id], [null, 3])
  assert.equal(at(50, 1).row, b)
  assert.deepEqual([at(10, 2).row, at(10, 2).segment.id], [null, 7])
  assert.equal(at(0, 3).row, b)
  assert.equal(at(99, 3).piece.offset, 100)
  const device = map(segments, [a, b], { scale: 'device', capacity: 800 })
  assert.equal(device.at(49, 1).row, a)
  const free = device.at(0, 2 * (LINE + GAP))
  assert.deepEqual([device.at(50, 1).segment.id, free.row, free.segment], [3, null, null])
  const one = map(segments, [a, b], { scale: 7 })
  assert.deepEqual([one.at(99, GAP + LINE).row, one.at(0, 2 * (GAP + LINE)).row], [null, b])
  const gone = map(segments, [a, b], { scale: 99 })
  assert.equal(gone.scale, 'segments')
  a.extents = [] // spilled since the map was laid out
  assert.deepEqual([at(0, 0).piece, at(0, 0).row, at(0, 0).segment.id], [null, null, 3])
})

test('what is private is known by its size, and drawn so', () => {
  const domain = mode => ({ share: 'fd', uid: 0, gid: 0, mode })
  const segments = [
    { id: 1, bytes: 200, used: 150, domain: domain('0644') }, // an unsealed object alone is no private one
    { id: 2, bytes: 100, used: 50, domain: domain('0600') },
    { id: 3, bytes: 100, used: 70, domain: domain('0640') },
    { id: 4, bytes: 100, used: 100, domain: null } // registered
  ]
  const row = placed(1, [[3, 0, 70]]) // of a group that may be told
  assert.equal(markPrivate(segments, new Set([3])), 150)
  assert.deepEqual(segments.map(segment => segment.private), [0, 50, 0, 100])
  const made = map(segments, [row], { lines: 5 }) // a byte is a pixel
  const hidden = (x, line) => made.at(x, line * (LINE + GAP) + 1).hidden
  assert.deepEqual([hidden(0, 0), hidden(0, 2), hidden(49, 2), hidden(50, 2), hidden(99, 3), hidden(99, 4)], [false, true, true, false, false, true])
})

test('what is small is seen, and of several the one used last', () => {
  const rows = Array.from({ length: 100 }, (_, i) => placed(i, [[1, i, 1]], { used: i === 57 ? 99 : i % 7 }))
  const dense = map([{ id: 1, bytes: 1e6 }], rows)
  const hit = dense.at(0, 0)
  assert.deepEqual([hit.row.version, hit.others], [57, 99])
  rows[3].leases = 1
  assert.equal(dense.at(0, 0).row.version, 3)
})

test('keys walk over the objects in the order of memory', () => {
  const segments = [{ id: 1, bytes: 100 }, { id: 2, bytes: 100 }, { id: 3, bytes: 200 }]
  const rows = [placed(3, [[2, 0, 10]]), placed(1, [[1, 0, 10], [1, 50, 10]]), placed(4, [[3, 20, 30]]), placed(5, [[3, 120, 3]])]
  const walked = map(segments, rows)
  let here = null
  const press = key => {
    here = walked.step(here, key)
    return `${here.segment}+${here.offset}`
  }
  assert.deepEqual(['ArrowRight', 'ArrowRight', 'ArrowRight', 'ArrowLeft', 'End', 'ArrowRight', 'Home', 'PageDown', 'PageDown', 'PageDown', 'PageUp', 'ArrowDown', 'ArrowUp']
    .map(press), ['1+0', '1+50', '2+0', '1+50', '3+120', '3+120', '1+0', '2+0', '3+20', '3+20', '2+0', '3+20', '2+0'])
})

test('what is pointed at stays with its object when the memory is laid out anew', () => {
  const segments = [{ id: 1, bytes: 100 }, { id: 2, bytes: 100 }]
  const rows = [placed(1, [[1, 0, 10]]), placed(2, [[1, 50, 10], [2, 0, 10]])]
  const made = map(segments, rows)
  const second = { row: rows[1], piece: made.step(null, 'End') }
  const where = () => {
    made.layOut(made.segments, rows, 0)
    const { piece } = made.again(second) ?? {}
    return piece && `${piece.segment}+${piece.offset}, at ${piece.from}`
  }
  rows[0].extents = [[1, 20, 10]]
  assert.equal(where(), '2+0, at 100')
  rows[1].extents = [[1, 70, 10], [1, 90, 5]] // moved
  assert.equal(where(), '1+70, at 70')
  rows.pop() // gone
  assert.equal(where(), undefined)
})

test('warm is what is in use or has just been used', () => {
  const levels = [0, 5, 60, 600, 3600, 1e5].map(s => warmth({ leases: 0, used: 1e9 - s * 1000 }, 1e9))
  assert.deepEqual(levels, [...levels].sort((a, b) => b - a))
  assert.equal(levels.at(-1), 0)
  assert.equal(levels[0], warmth({ leases: 1, used: 0 }, 1e9))
})

test('the history counts by the second, for an hour', () => {
  const start = 1_700_000_000_000
  const history = new History(start)
  history.add('spilled', { name: 'a', bytes: 10 }, start)
  history.add('spilled', { name: 'b', bytes: 5 }, start + 500)
  history.add('evicted', { name: 'c', bytes: 1 }, start + 30_000)
  history.add('sealed', { name: 'd', bytes: 1 }, start + 30_000)
  history.add('unheard of', { name: 'd', bytes: 1 }, start + 30_000)
  const { kinds, start: from, width } = history.bins(start + 31_000, 60, 60)
  assert.deepEqual([kinds.spilled.count, kinds.spilled.bytes, kinds.evicted.count], [2, 15, 1])
  assert.equal(kinds.spilled.counts[(start - from) / width], 2)
  assert.deepEqual(history.recent.map(each => each.name), ['a', 'b', 'c'])
  assert.equal(history.bins(start + 90_000, 60, 60).kinds.spilled.count, 0)
  assert.equal(history.bins(start + 90_000, 600, 60).kinds.spilled.count, 2)
  // An hour later a place is another second's.
  history.add('spilled', { name: 'e', bytes: 1 }, start + 3600_000)
  assert.equal(history.bins(start + 3600_000, 3600, 60).kinds.spilled.count, 1)
})

test('figures are read at a glance', () => {
  const plain = text => text.replace(/[\u00a0\u202f]/g, ' ')
  assert.deepEqual([0, 1, 1023, 1024, 1536, 1047552, 1048576, 104857600, 141 * 2 ** 30, NaN].map(n => plain(bytes(n))),
    ['0 B', '1 B', '1023 B', '1.0 KiB', '1.5 KiB', '1023 KiB', '1.0 MiB', '100 MiB', '141 GiB', '–'])
  assert.deepEqual([0, 999, 1000, 1234567].map(n => plain(count(n))), ['0', '999', '1 000', '1 234 567'])
  assert.deepEqual([0, 59_400, 59_600, 3600_000, 48 * 3600_000].map(n => plain(span(n))), ['0 s', '59 s', '1 min', '1 h', '2 d'])
  assert.deepEqual([[0, 5], [1, 1000], [1, 3], [1, 0]].map(([a, b]) => plain(percent(a, b))), ['0 %', '<1 %', '33 %', '–'])
})
