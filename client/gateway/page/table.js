// The table of objects. As many rows as fit are in the document; the worker holds the rest and sends
// those that are looked at. A grid to assistive technology: it says how many rows there are, and which of
// them these are.

import { ago, bytes, clock, count, fps } from './format.js'
import { setText } from './lists.js'

const HEIGHT = 28 // of a row, in CSS pixels, as page.css has it
const SPARE = 4 // rows beyond the edge, on either side
const TALLEST = 15_000_000 // CSS pixels that every browser can scroll over

const COLUMNS = [
  { key: 'name', label: 'Name', show: row => row.name },
  { key: 'bytes', label: 'Size', kind: 'number', down: true, show: row => bytes(row.bytes) },
  { key: 'kind', label: 'Kind', kind: 'wide', show: row => row.kind + (row.rate === null ? '' : ` · ${fps(row.rate)} fps`) },
  { key: 'device', label: 'Device', kind: 'wide', show: (row, now, devices) => devices.get(row.device) ?? row.device },
  { key: 'tier', label: 'Tier', show: row => row.tier },
  { key: 'leases', label: 'Held', kind: 'number', down: true, show: row => (row.leases ? count(row.leases) : '–') },
  { key: 'cached', label: 'Cached', kind: 'number wide', down: true, show: row => (row.cached ? count(row.cached) : '–') },
  { key: 'used', label: 'Last use', kind: 'number', show: (row, now) => (row.leases ? 'in use' : ago(now - row.used)) },
  { key: 'uid', label: 'Uid', kind: 'number wide', show: row => String(row.uid) },
  { key: 'mode', label: 'Mode', kind: 'wide', show: row => row.mode },
  { key: 'short', label: 'If short', kind: 'wide', show: row => row.short },
  { key: 'born', label: 'Created', kind: 'number wide', show: row => clock(row.born) }
]

export class Table {
  /** `ask` tells the worker; `element` is the grid. */
  constructor (element, ask) {
    this.element = element
    this.ask = ask
    this.body = element.querySelector('.body')
    this.head = element.querySelector('.head')
    this.nothing = element.querySelector('.nothing')
    this.slots = []
    this.shown = -1
    this.first = 0
    this.cursor = 0
    this.led = false // by a key to another row
    this.sort = { key: 'name', down: false }
    this.asked = ''
    this.#makeHead()
    element.setAttribute('aria-colcount', COLUMNS.length)
    element.addEventListener('scroll', () => this.#scrolled(), { passive: true })
    element.addEventListener('keydown', event => this.#key(event))
    this.body.addEventListener('click', event => this.#clicked(event))
    new ResizeObserver(() => this.#scrolled()).observe(element)
  }

  #makeHead () {
    const row = this.head.firstElementChild
    COLUMNS.forEach((column, index) => {
      const cell = document.createElement('div')
      cell.setAttribute('role', 'columnheader')
      cell.setAttribute('aria-colindex', index + 1)
      cell.className = `cell ${column.kind ?? ''} of-${column.key}`
      const button = document.createElement('button')
      button.type = 'button'
      button.textContent = column.label
      button.addEventListener('click', () => this.#sortBy(column))
      cell.append(button)
      row.append(cell)
      column.head = cell
    })
    this.#tellSort()
  }

  #sortBy (column) {
    const down = this.sort.key === column.key ? !this.sort.down : Boolean(column.down)
    this.sort = { key: column.key, down }
    this.#tellSort()
    this.element.scrollTop = 0
    this.cursor = 0
    this.ask({ ask: 'view', first: 0, sort: column.key, down })
  }

  #tellSort () {
    for (const column of COLUMNS) {
      const mine = column.key === this.sort.key
      column.head.setAttribute('aria-sort', mine ? (this.sort.down ? 'descending' : 'ascending') : 'none')
    }
  }

  /** Pixels that all rows would take, and how many pixels of that one of the scroll bar stands for. */
  get #stretch () {
    const tall = this.shown * HEIGHT
    const room = this.#room
    return tall > TALLEST ? (tall - room) / (TALLEST - room) : 1
  }

  get #room () {
    return Math.max(HEIGHT, this.element.clientHeight - this.head.offsetHeight)
  }

  get #fitting () {
    return Math.max(1, Math.floor(this.#room / HEIGHT))
  }

  #scrolled () {
    const first = Math.max(0, Math.floor(this.element.scrollTop * this.#stretch / HEIGHT) - SPARE)
    const count = Math.ceil(this.#room / HEIGHT) + 2 * SPARE
    const asked = `${first} ${count}`
    if (asked === this.asked) return
    this.asked = asked
    this.ask({ ask: 'view', first, count })
  }

  /** Shows the rows that the worker sent. */
  show ({ now, rows, first, shown, total, hidden, selected, devices }, complete) {
    this.devices = new Map(devices.map(device => [device.id, device.name]))
    this.now = now
    this.rows = rows
    this.first = first
    this.version = selected?.version ?? null
    if (shown !== this.shown) {
      this.shown = shown
      this.body.style.height = `${Math.min(TALLEST, shown * HEIGHT)}px`
      this.element.setAttribute('aria-rowcount', shown + 1)
    }
    // Few objects take little room; what is filtered out does not move the rest of the page.
    const height = total < 15 ? `${(Math.max(3, total) + 1) * HEIGHT + 8}px` : ''
    if (this.element.style.height !== height) this.element.style.height = height
    this.cursor = Math.max(0, Math.min(this.cursor, shown - 1))
    this.nothing.hidden = shown > 0
    if (!shown) {
      const empty = complete && !total && !hidden
      setText(this.nothing.firstElementChild, total ? 'No object passes the filter.'
        : !complete ? 'Asking the daemon…'
          : empty ? 'The daemon holds no objects yet. This brings one:' : 'Private objects only.')
      this.nothing.lastElementChild.hidden = !empty
    }
    this.#draw()
    this.#scrolled()
  }

  #draw () {
    while (this.slots.length < this.rows.length) this.slots.push(this.#makeSlot(this.slots.length))
    // Visible rows stay where they are seen, whichever rows the scroll bar has not reached.
    const stretch = this.#stretch
    const shift = stretch === 1 ? 0 : this.element.scrollTop - this.element.scrollTop * stretch
    this.slots.forEach((slot, place) => {
      const row = this.rows[place]
      if (slot.row.hidden !== !row) slot.row.hidden = !row
      if (!row) return
      const index = this.first + place
      const top = `translateY(${index * HEIGHT + shift}px)`
      if (slot.top !== top) slot.row.style.transform = slot.top = top
      set(slot, 'aria-rowindex', String(index + 2))
      set(slot, 'aria-selected', String(row.version === this.version))
      set(slot, 'data-cursor', String(index === this.cursor))
      slot.version = row.version
      slot.index = index
      COLUMNS.forEach((column, i) => {
        const text = column.show(row, this.now, this.devices)
        if (slot.texts[i] === text) return
        slot.texts[i] = text
        slot.cells[i].firstChild.data = text
        if (i === 0) slot.cells[0].title = text
      })
    })
    const active = this.slots.find(slot => !slot.row.hidden && slot.index === this.cursor)
    // A row that keys led to is to be seen in the window, too; a table that is stretched would be moved by that.
    if (active && this.led && stretch === 1) active.row.scrollIntoView({ block: 'nearest' })
    if (active) this.led = false
    const id = active ? active.row.id : ''
    if (this.active !== id) {
      this.active = id
      if (id) this.element.setAttribute('aria-activedescendant', id)
      else this.element.removeAttribute('aria-activedescendant')
    }
  }

  #makeSlot (place) {
    const row = document.createElement('div')
    row.className = 'row'
    row.id = `row-${place}`
    row.setAttribute('role', 'row')
    const cells = COLUMNS.map((column, index) => {
      const cell = document.createElement('div')
      cell.className = `cell ${column.kind ?? ''} of-${column.key}`
      cell.setAttribute('role', 'gridcell')
      cell.setAttribute('aria-colindex', index + 1)
      cell.append('')
      row.append(cell)
      return cell
    })
    this.body.append(row)
    return { row, cells, texts: [], values: {}, top: '', version: null, index: -1 }
  }

  #clicked (event) {
    const element = event.target.closest('.row')
    const slot = this.slots.find(each => each.row === element)
    if (!slot) return
    this.cursor = slot.index
    this.ask({ ask: 'select', version: slot.version })
    this.#draw()
  }

  #key (event) {
    if (event.target !== this.element || event.ctrlKey || event.metaKey || event.altKey) return
    const page = this.#fitting
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity }
    if (event.key in steps) {
      this.led = true
      this.moveTo(Math.max(0, Math.min(this.shown - 1, this.cursor + steps[event.key])))
    } else if (event.key === 'Enter' || event.key === ' ') {
      this.ask({ ask: 'select', index: this.cursor })
    } else {
      return
    }
    event.preventDefault()
  }

  /** Puts the cursor on a row and brings it into sight. */
  moveTo (index) {
    if (index < 0 || index >= this.shown) return
    this.cursor = index
    const stretch = this.#stretch
    const top = this.element.scrollTop * stretch
    const room = this.#fitting * HEIGHT
    if (index * HEIGHT < top) this.element.scrollTop = index * HEIGHT / stretch
    else if ((index + 1) * HEIGHT > top + room) {
      this.element.scrollTop = Math.ceil(((index + 1) * HEIGHT - room) / stretch)
    }
    this.#scrolled()
    this.#draw()
  }
}

function set (slot, name, value) {
  if (slot.values[name] === value) return
  slot.values[name] = value
  slot.row.setAttribute(name, value)
}
