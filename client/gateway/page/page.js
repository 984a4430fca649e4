// The page: shows what the worker sends, and tells it what is asked for.

import { DevicePanel } from './device.js'
import { ago, bytes, clock, count, counted, fps, span, title } from './format.js'
import { fillTerms, makeTable, setText } from './lists.js'
import { Table } from './table.js'
import { Tiers } from './tiers.js'
import { Timeline } from './timeline.js'

// After a token that was wrong; where it belongs, nobody reads it.
if (location.hash === '#wrong') history.replaceState(null, '', location.pathname)

const at = id => document.getElementById(id)
const dark = matchMedia('(prefers-color-scheme: dark)')
const worker = new Worker('worker.js', { type: 'module' })
const ask = (message, moved = []) => worker.postMessage(message, moved)

const panels = new Map()
const table = new Table(at('table'), ask)
const tiers = new Tiers(at('tiers'), at('no-tiers'))
const timeline = new Timeline(at('timeline'), at('timeline-sum'), at('recent'))
const fillSessions = makeTable(at('sessions'), 'Sessions', [
  { label: 'Session', kind: 'number' }, { label: 'Client', kind: 'long' }, { label: 'Pid', kind: 'number' },
  { label: 'Uid', kind: 'number' }, { label: 'Held', kind: 'number' }, { label: 'Cached', kind: 'number' },
  { label: 'In leases', kind: 'number' }, { label: 'Mapped', kind: 'number' }
])
let frame = null
let paused = false
let goTo = false // the row that has just been chosen on a map comes into sight

// ---- frames ----

worker.onmessage = ({ data }) => {
  if (data.tell === 'point') return panels.get(data.device)?.point(data)
  if (data.tell === 'map') return panels.get(data.device)?.draw(data.bitmap)
  frame = data
  document.documentElement.dataset.frames = data.frames
  showConnection(data.connection)
  showSums(data)
  showDevices(data.devices)
  if (data.devices.length) tiers.show(data.tiers)
  table.show(data, data.complete)
  if (goTo && data.selectedAt >= 0) table.moveTo(data.selectedAt)
  goTo = false
  showShown(data)
  showDetails(data)
  if (data.instance) timeline.show(data.history, data.now, data.devices)
  showSessions(data.sessions)
}
worker.onerror = event => {
  setText(at('connection-text'), `This browser cannot show the page: ${event.message || 'its worker did not start'}`)
}

function showConnection ({ kind, why, next, lostAt }) {
  const pill = at('connection')
  pill.dataset.kind = paused && kind === 'live' ? 'paused' : kind
  at('retry').hidden = kind !== 'lost' && kind !== 'denied'
  const stale = kind === 'lost' || kind === 'again' || kind === 'denied'
  document.body.classList.toggle('stale', stale)
  const icon = stale ? 'lost.svg' : 'icon.svg'
  if (at('icon').getAttribute('href') !== icon) at('icon').setAttribute('href', icon)
  // Only what a listener needs: seconds that count down would be read out one by one.
  const text = {
    connecting: 'Connecting…',
    again: 'Connecting again…',
    live: paused ? 'Paused' : 'Live',
    lost: `Connection lost at ${clock(lostAt)}: ${why}. Trying again.`,
    denied: 'The daemon wants its token.'
  }[kind]
  // "Again" lasts for a blink if it fails; what was said stays until something is better.
  if (kind !== 'again' || !pill.dataset.was) setText(at('connection-text'), text)
  pill.dataset.was = kind
  pill.title = next && kind === 'lost' ? `next try in ${span(next - Date.now())}` : ''
  at('sign-in').hidden = kind !== 'denied'
}

function showSums ({ total, expected, hidden, hiddenBytes, sums, sessions, complete, instance, version }) {
  if (!instance) return // nothing is known yet
  setText(at('sum-objects'), count(total))
  setText(at('sum-private'), hidden ? `+ ${count(hidden)} private` : complete ? '' : `of ${count(expected)}`)
  setText(at('sum-bytes'), bytes(sums.bytes))
  setText(at('sum-private-bytes'), hiddenBytes ? `+ ${bytes(hiddenBytes)} private` : '')
  setText(at('sum-leases'), count(sums.leases))
  setText(at('sum-cached'), sums.cached ? `+ ${count(sums.cached)} cached` : '')
  setText(at('sum-sessions'), count(sessions.total))
  setText(at('sum-own'), sessions.own ? `+ ${count(sessions.own)} of this page` : '')
  setText(at('instance'), `${version ?? ''} · instance ${instance.slice(0, 8)}`)
}

function showDevices (devices) {
  if (!devices.length) return
  const place = at('devices')
  for (const [id, panel] of panels) {
    if (devices.some(device => device.id === id)) continue
    panel.element.remove()
    panels.delete(id)
    ask({ ask: 'gone', device: id })
  }
  for (const device of devices) {
    let panel = panels.get(device.id)
    if (!panel) {
      place.querySelector('.wait')?.remove()
      panel = new DevicePanel(device, ask, choose)
      panels.set(device.id, panel)
      place.append(panel.element)
      panel.setTheme(dark.matches ? 'dark' : 'light')
      at('filter-device').add(new Option(device.name, device.id))
    }
    panel.setLines(!device.segmentCount ? 2 : devices.length > 2 ? 8 : 12)
    panel.show(device)
  }
  place.classList.toggle('many', devices.length > 2)
}

function showShown ({ shown, total, hidden, complete }) {
  setText(at('shown'), !total && !complete ? '' : shown === total ? counted(total, 'object') : `${count(shown)} of ${counted(total, 'object')}`)
  at('hidden').hidden = !complete || hidden === 0
  setText(at('hidden'), `${counted(hidden, 'private object')} not shown: an object's name is for those who may open ` +
    'it. A gateway that has a token, or listens at a unix socket, tells of all that its own user may open.')
}

function showDetails ({ selected, now }) {
  const details = at('details')
  details.hidden = !selected
  if (!selected) return
  setText(at('details-title'), title(selected))
  const device = frame.devices.find(each => each.id === selected.device)
  const extents = selected.extents.slice(0, 8).map(([segment, offset, size]) =>
    `segment ${segment} at ${bytes(offset)}: ${bytes(size)}`)
  if (selected.extents.length > 8) extents.push(`and ${selected.extents.length - 8} more`)
  fillTerms(details.querySelector('dl'), [
    ['State', selected.alive ? (selected.leases ? 'in use' : 'not in use') : 'gone: deleted, replaced or evicted'],
    ...aboutLive(selected),
    ...whoHolds(selected),
    ['Version', String(selected.version)],
    ['Size', `${bytes(selected.bytes)} (${counted(selected.bytes, 'byte')})`],
    ['Device', device?.name ?? selected.device],
    ['Tier', selected.tier],
    ['Pinned', selected.pinned ? 'yes' : 'no'],
    ['If short', `${{
      spills: 'spills to a tier', drops: 'is removed', stays: 'stays where it is', pinned: 'stays, as it is pinned'
    }[selected.short] ?? selected.short} (evict=${selected.evict})`],
    ['Owner', `uid ${selected.uid}, mode ${selected.mode}`],
    [selected.live ? 'Created' : 'Sealed', `${new Date(selected.born).toISOString().slice(0, 10)} ${clock(selected.born)} (${ago(now - selected.born)})`],
    ['Last use', selected.leases ? 'in use now' : ago(now - selected.used)],
    ['Memory', extents.join('\n') || 'none in a segment']
  ])
}

/** Terms of live objects alone. */
function aboutLive ({ live, rate }) {
  if (!live) return []
  const { stream, generation, writers } = live
  return [
    ['Kind', stream ? 'stream' : 'live: written while others read it'],
    ...(stream ? [['Frames', count(stream.frames) + (rate === null ? '' : `, ${fps(rate)} a second`)]] : []),
    ['Generation', generation ? count(generation) : '0: never claimed'],
    ...(writers ? [] : [['Written by', 'nobody']])
  ]
}

/** Each lease on the object: held, or cached or parked, which do not keep it in memory. */
function whoHolds ({ leases, cached, parked, holders, waits }) {
  const known = [['held', leases], ['cached', cached], ['parked', parked]].filter(([, n]) => n)
  const terms = [['Leases', known.map(([how, n]) => `${count(n)} ${how}`).join(', ') || 'none']]
  for (const each of holders ?? []) {
    const how = each.cached_ms !== undefined ? 'Cached by' : each.parked_ms !== undefined ? 'Parked by'
      : each.access === 'rw' ? (each.exclusive && !each.stream ? 'Claimed by' : 'Written by')
        : each.stream ? 'Read by' : 'Held by'
    terms.push([how, who(each) + takesPart(each.stream)])
  }
  if (waits) terms.push([waits.exclusive ? 'Claim waits' : 'Writer waits', who(waits)])
  return terms
}

function who ({ client, pid, session, age_ms: age }) {
  return `${client || 'no name'}, pid ${pid}, session ${session}, for ${span(age)}`
}

function takesPart (stream) {
  if (stream?.reader === undefined) return ''
  const behind = stream.behind === undefined ? '' : `, ${count(stream.behind)} behind`
  return `\n${counted(stream.frames, 'frame')} read, ${count(stream.missed)} missed${behind}, ` +
    `${count(stream.held)} of ${count(stream.hold)} held, lag ${count(stream.lag)}`
}

function showSessions (sessions) {
  const { total = 0, listed = [], own = 0 } = sessions ?? {}
  fillSessions(listed.map(each => [
    String(each.session), `${each.client || '–'}${each.own ? ' (this page)' : ''}`, String(each.pid), String(each.uid),
    count(each.leases), count(each.cached), bytes(each.bytes), bytes(each.mapped_bytes)
  ]))
  let note = at('sessions').querySelector('p')
  if (!note) {
    note = Object.assign(document.createElement('p'), { className: 'quiet' })
    at('sessions').append(note)
  }
  const more = total + own - listed.length
  const text = !sessions ? 'Asking the daemon…' : total === 0 ? `Nobody${own ? ' else' : ''} is connected.` : more ? `${count(more)} more, which hold less.` : ''
  setText(note, text)
  note.hidden = !text
  at('sessions').querySelector('table').hidden = listed.length === 0
}

// ---- what is asked ----

/** An object chosen on a map: its details, and its row. */
function choose (version) {
  goTo = true
  ask({ ask: 'select', version })
  say(`Details of ${title(frame?.rows.find(row => row.version === version) ?? { name: 'the object' })} are shown`)
}

function say (text) {
  setText(at('spoken'), text)
}

const filter = at('filter')
let told = null
function applyFilter () {
  at('table').scrollTop = 0
  ask({
    ask: 'view',
    first: 0,
    filter: {
      text: at('filter-text').value,
      device: at('filter-device').value,
      tier: at('filter-tier').value,
      hold: at('filter-hold').value
    }
  })
  clearTimeout(told)
  told = setTimeout(() => say(`${at('shown').textContent} shown`), 1000)
}
filter.addEventListener('input', applyFilter)
filter.addEventListener('submit', event => event.preventDefault())
at('span').addEventListener('change', ({ target }) => ask({ ask: 'view', span: Number(target.value) }))

at('details-close').addEventListener('click', closeDetails)
function closeDetails () {
  const inside = at('details').contains(document.activeElement)
  ask({ ask: 'select', version: null })
  if (inside) at('table').focus()
}
document.addEventListener('keydown', event => {
  if (event.key === 'Escape' && frame?.selected && event.target !== at('filter-text')) closeDetails()
})

at('pause').addEventListener('click', () => {
  paused = !paused
  at('pause').setAttribute('aria-pressed', paused)
  if (frame) showConnection(frame.connection)
  ask({ ask: 'pause', on: paused })
})
at('retry').addEventListener('click', () => ask({ ask: 'retry' }))
addEventListener('online', () => ask({ ask: 'retry' }))
document.addEventListener('visibilitychange', () => ask({ ask: 'active', on: !document.hidden }))

// An element with the focus, or one that a link leads to, comes to lie below the header, whatever its height.
new ResizeObserver(([{ target }]) => {
  document.documentElement.style.scrollPaddingTop = `${Math.ceil(target.getBoundingClientRect().height)}px`
}).observe(document.querySelector('.top'))

dark.addEventListener('change', () => {
  ask({ ask: 'theme', dark: dark.matches })
  for (const panel of panels.values()) panel.setTheme(dark.matches ? 'dark' : 'light')
})

ask({ ask: 'start', base: new URL('.', location).href, dark: dark.matches })
