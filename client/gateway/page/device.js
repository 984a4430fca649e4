// A device: how full it is, the map of its memory, and its segments as a table.

import { ago, bytes, count, counted, title } from './format.js'
import { makeTable, setAttribute, setText } from './lists.js'
import { GAP, LINE, warmthColours } from './map.js'

const SHARES = [
  ['used', 'in objects'],
  ['private', 'in private objects'],
  ['retained', 'retained'],
  ['pinned', 'pinned by clients'],
  ['free', 'free']
]
const KEYS = new Set(['ArrowLeft', 'ArrowRight', 'ArrowUp', 'ArrowDown', 'PageUp', 'PageDown', 'Home', 'End'])

export class DevicePanel {
  constructor (device, ask, choose) {
    this.id = device.id
    this.ask = ask
    this.choose = choose
    this.element = document.getElementById('device-template').content.cloneNode(true).firstElementChild
    this.find = selector => this.element.querySelector(selector)
    this.lines = 0
    this.object = null
    this.scales = ''
    this.#makeHead(device)
    this.#makeMap()
    this.fillSegments = makeTable(this.find('.segments'), `Segments of ${device.name}`, [
      { label: 'Segment', kind: 'number' }, { label: 'Size', kind: 'number' },
      { label: 'In objects', kind: 'number' }, { label: 'Objects', kind: 'number' },
      { label: 'State' }, { label: 'Share' }, { label: 'Uid', kind: 'number' },
      { label: 'Gid', kind: 'number' }, { label: 'Mode' }
    ])
  }

  #makeHead (device) {
    const heading = this.find('h3')
    heading.textContent = device.name
    heading.id = `device-${device.id}`
    this.element.setAttribute('aria-labelledby', heading.id)
    const id = device.id === device.name ? '' : device.id
    this.find('.name').textContent = id
    for (const [kind, label] of SHARES) {
      const item = document.createElement('li')
      item.className = kind
      item.append(Object.assign(document.createElement('i'), { className: 'swatch' }), label,
        Object.assign(document.createElement('b'), { textContent: '–' }))
      this.find('.legend').append(item)
    }
  }

  #makeMap () {
    const map = this.find('.map')
    this.map = map
    const canvas = document.createElement('canvas')
    map.append(canvas)
    this.canvas = canvas.getContext('bitmaprenderer')
    this.ask({ ask: 'device', device: this.id })
    // The pointer moves more often than there is something to tell.
    let waiting = null
    const point = () => {
      const [x, y] = waiting
      waiting = null
      this.ask({ ask: 'point', device: this.id, x, y })
    }
    map.addEventListener('pointermove', event => {
      const box = map.getBoundingClientRect()
      if (!waiting) requestAnimationFrame(point)
      waiting = [event.clientX - box.left, event.clientY - box.top]
    })
    map.addEventListener('pointerleave', () => {
      if (!waiting) requestAnimationFrame(point)
      waiting = [null, null]
    })
    map.addEventListener('click', () => this.object && this.choose(this.object.version))
    map.addEventListener('keydown', event => this.#key(event))
    map.addEventListener('blur', () => this.ask({ ask: 'point', device: this.id, x: null, y: null }))
    this.find('.scale').addEventListener('change', ({ target: { value } }) => {
      this.ask({ ask: 'map', device: this.id, scale: Number(value) || value })
    })
    this.find('.colour').addEventListener('change', ({ target: { value } }) => {
      this.ask({ ask: 'map', device: this.id, colour: value })
    })
    new ResizeObserver(() => this.#size()).observe(map)
  }

  /** Lines of the map: fewer where there are many devices. */
  setLines (lines) {
    if (lines === this.lines) return
    this.lines = lines
    this.map.style.height = `${lines * (LINE + GAP) - GAP}px`
    this.#size()
  }

  #size () {
    const width = Math.floor(this.map.clientWidth)
    if (width > 0 && this.lines) {
      this.ask({ ask: 'size', device: this.id, width, ratio: Math.min(3, devicePixelRatio), lines: this.lines })
    }
  }

  #key (event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return
    if (KEYS.has(event.key)) this.ask({ ask: 'step', device: this.id, key: event.key })
    else if ((event.key === 'Enter' || event.key === ' ') && this.object) this.choose(this.object.version)
    else return
    event.preventDefault()
  }

  setTheme (theme) {
    const colours = warmthColours(theme)
    this.find('.ramp').style.background = `linear-gradient(to right, ${colours.join(', ')})`
  }

  show (device) {
    this.capacity = device.capacity
    const { capacity, used = 0, retained = 0 } = device
    const pinned = device.pinned_by_clients ?? 0
    const hidden = Math.min(device.private ?? 0, used)
    const figures = { used: used - hidden, private: hidden, retained, pinned, free: device.free ?? capacity - used - retained - pinned }
    setText(this.find('.most'), bytes(capacity))
    setText(this.find('.figure'), `${bytes(used + retained + pinned)} of ${bytes(capacity)} taken`)
    for (const [kind, label] of SHARES) {
      setText(this.find(`.legend .${kind} b`), bytes(figures[kind]))
      const part = this.find(`.bar .${kind}`)
      const width = `${100 * figures[kind] / capacity}%`
      if (part && part.style.width !== width) part.style.width = width
      part?.classList.toggle('some', figures[kind] > 0)
    }
    this.element.classList.toggle('with-private', hidden > 0)
    this.#showPast(device.past, capacity, used)
    setText(this.find('.away'), device.spilled
      ? `${counted(device.spilled, 'object')} with ${bytes(device.spilled_bytes)} spilled` : '')
    setAttribute(this.find('.bar'), 'aria-label', SHARES.filter(([kind]) => kind !== 'private' || hidden > 0)
      .map(([kind, label]) => `${bytes(figures[kind])} ${label}`).join(', '))
    this.#showSegments(device)
    const about = `Memory map of ${device.name}: ${counted(device.segmentCount, 'segment')} of together ` +
      `${bytes(device.segmentBytes)}, with ${counted(device.objects, 'object')}${
        hidden > 0 ? ` and ${bytes(hidden)} in private ones` : ''}. Arrow keys go through the ` +
      'objects, Page keys through the segments; Enter shows details.'
    setAttribute(this.map, 'aria-label', about)
    setAttribute(this.map, 'aria-valuemax', Math.max(1, device.segmentBytes))
    this.map.classList.toggle('empty', device.segmentCount === 0)
    if (!this.object) this.#tell(device.segmentCount
      ? `${counted(device.objects, 'object')}${hidden > 0 ? ` and ${bytes(hidden)} private` : ''} in ${
        counted(device.segmentCount, 'segment')}`
      : 'Nothing is allocated on this device.')
  }

  /** Draws the line of the last ten minutes, which breaks where nothing is known. */
  #showPast (past, capacity, used) {
    const at = (bytes, i) => `${i},${(30 - 28 * bytes / capacity).toFixed(1)}`
    let path = ''
    past.forEach((bytes, i) => {
      if (bytes !== null) path += `${i > 0 && past[i - 1] !== null ? 'L' : 'M'}${at(bytes, i)}`
    })
    setAttribute(this.find('.past path'), 'd', path || 'M0,0')
    const first = past.find(bytes => bytes !== null) ?? used
    setAttribute(this.find('.past'), 'aria-label', `In objects in the last ten minutes: from ${bytes(first)} to ${
      bytes(used)}, at most ${bytes(Math.max(used, ...past))}`)
  }

  #showSegments ({ segments, segmentCount }) {
    setText(this.find('summary'), counted(segmentCount, 'segment') +
      (segments.length < segmentCount ? `, the first ${segments.length} of them` : ''))
    const scales = segments.map(segment => segment.id).join()
    if (scales !== this.scales) {
      this.scales = scales
      const select = this.find('.scale')
      const value = select.value
      while (select.options.length > 2) select.remove(2)
      for (const { id, bytes: size } of segments) select.add(new Option(`segment ${id} (${bytes(size)})`, id))
      select.value = value
      if (!select.value) select.value = 'segments'
    }
    if (!this.find('details').open) return
    // Memory that a client has registered lies in no domain.
    this.fillSegments(segments.map(({ id, bytes: size, used, private: hidden, objects, state, domain }) => [
      String(id), bytes(size), bytes(used), hidden > 0 ? 'private' : count(objects), state, domain?.share ?? '–',
      String(domain?.uid ?? '–'), String(domain?.gid ?? '–'), domain?.mode ?? '–'
    ]))
  }

  /** The map as the worker has painted it. */
  draw (bitmap) {
    const { canvas } = this.canvas
    if (canvas.width !== bitmap.width) canvas.width = bitmap.width
    if (canvas.height !== bitmap.height) canvas.height = bitmap.height
    this.canvas.transferFromImageBitmap(bitmap)
  }

  /** Shows the object or the free piece under the pointer, or under the keyboard's cursor. */
  point ({ object, piece, segment, hidden, others, density, now }) {
    this.object = object
    if (object) {
      const parts = [title(object)]
      if (piece.bytes !== object.bytes) parts.push(`${bytes(piece.bytes)} of its ${bytes(object.bytes)}`)
      else parts.push(bytes(object.bytes))
      parts.push(`segment ${piece.segment} at ${bytes(piece.offset)}`,
        object.leases ? counted(object.leases, 'lease') : `used ${ago(now - object.used)}`)
      if (object.pinned) parts.push('pinned')
      if (others > 0) parts.push(`and ${counted(others, 'more object')} here`)
      this.#tell(parts.join(' · '))
      setAttribute(this.map, 'aria-valuenow', piece.at)
      setAttribute(this.map, 'aria-valuetext', parts.join(', '))
    } else {
      this.#tell(segment === null ? (density ? `one pixel is ${bytes(devicePixelRatio / density)}` : '')
        : `segment ${segment}: ${hidden ? 'private objects, by their size alone' : 'no object here'}`)
      setAttribute(this.map, 'aria-valuetext', 'no object')
    }
  }

  #tell (text) {
    setText(this.find('.at'), text)
  }
}
