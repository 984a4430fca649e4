// The page: a histogram and a scatter of the same flights; each brushes the other. The columns are
// typed arrays of the received Arrow table; no row becomes an object.

const BINS = 96 // of 15 minutes
const MILES = { from: 0, to: 5000, cell: 10 }
const MINUTES = { from: -60, to: 240, cell: 1 } // values beyond lie at the edge
const MARGIN = { left: 72, right: 14, top: 12, bottom: 40 }
const KEPT = 6 // px within which a press is a click

const find = id => document.getElementById(id)
const clamp = (value, least, most) => Math.min(Math.max(value, least), most)
const count = new Intl.NumberFormat('en', { useGrouping: true })
const clock = bin => `${String(Math.floor(bin / 4)).padStart(2, '0')}:${String(bin % 4 * 15).padStart(2, '0')}`

// ---- the data ----

const started = performance.now()
const params = new URLSearchParams(location.search)
const name = params.get('name') ?? 'flights'
const table = await fetch(`/objects/${encodeURIComponent(name)}`).then(async response => {
  if (!response.ok) throw new Error((await response.json()).error)
  return Arrow.tableFromIPC(response)
}).catch(error => {
  find('source').textContent = ''
  find('problem').textContent = `The table "${name}" could not be read: ${error.message}`
  throw error
})
const [time, distance, delay] = ['time', 'distance', 'delay'].map(column => table.getChild(column).toArray())
const rows = table.numRows
find('source').textContent =
  `${count.format(rows)} rows of shared memory, here as Arrow after ${Math.round(performance.now() - started)} ms`

// The bin and the cell of each flight, computed once. A cell spans whole minutes, as delays are whole: a narrower one
// would stay empty.
const COLUMNS = (MILES.to - MILES.from) / MILES.cell
const LINES = (MINUTES.to - MINUTES.from) / MINUTES.cell
const bin = Uint8Array.from(time, hours => clamp(Math.floor(hours * 4), 0, BINS - 1))
const column = Uint16Array.from(distance, miles => clamp(Math.floor((miles - MILES.from) / MILES.cell), 0, COLUMNS - 1))
const line = Uint16Array.from(delay, minutes => clamp(minutes - MINUTES.from, 0, LINES - 1))

// ---- what is chosen ----

let hours // { from, to } in bins
let area // { left, right } in columns, { from, to } in lines

const bins = new Uint32Array(BINS)
const cells = new Uint32Array(COLUMNS * LINES)
const allCells = new Uint32Array(COLUMNS * LINES)
for (let i = 0; i < rows; i++) allCells[line[i] * COLUMNS + column[i]]++
const most = allCells.reduce((one, other) => Math.max(one, other)) // in a cell

/** Counts anew: the histogram has the flights chosen in the scatter, the scatter colors those chosen in both. */
function choose () {
  bins.fill(0)
  cells.fill(0)
  let both = 0
  const { from, to } = hours ?? { from: 0, to: BINS }
  const box = area ?? { left: 0, right: COLUMNS, from: 0, to: LINES }
  for (let i = 0; i < rows; i++) {
    const inHours = bin[i] >= from && bin[i] < to
    const inArea = column[i] >= box.left && column[i] < box.right && line[i] >= box.from && line[i] < box.to
    if (inArea) bins[bin[i]]++
    if (!inHours || !inArea) continue
    cells[line[i] * COLUMNS + column[i]]++
    both++
  }
  tell(both)
}

function tell (both) {
  const said = []
  if (hours) said.push(`${clock(hours.from)} to ${clock(hours.to)}`)
  if (area) {
    said.push(`${count.format(area.left * MILES.cell)} to ${count.format(area.right * MILES.cell)} mi`)
    const ends = [area.from === 0 ? 'any' : area.from + MINUTES.from, area.to === LINES ? 'any' : area.to + MINUTES.from]
    said.push(`${ends[0]} to ${ends[1]} min`.replaceAll('-', '−'))
  }
  find('status').innerHTML = `<strong>${count.format(both)}</strong> of ${count.format(rows)}` +
    (said.length ? ` · ${said.join(' · ')}` : ' flights')
  find('clear').disabled = !said.length
}

// ---- drawing ----

const style = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim()
const dark = matchMedia('(prefers-color-scheme: dark)')

/** A canvas as sharp as the screen, and the place for data in it. */
function surface (canvas) {
  const { width, height } = canvas.getBoundingClientRect()
  const scale = devicePixelRatio || 1
  canvas.width = Math.round(width * scale)
  canvas.height = Math.round(height * scale)
  const context = canvas.getContext('2d')
  context.scale(scale, scale)
  context.font = '12px system-ui, "DejaVu Sans", sans-serif'
  const plot = {
    x: MARGIN.left, y: MARGIN.top, width: width - MARGIN.left - MARGIN.right, height: height - MARGIN.top - MARGIN.bottom
  }
  return { context, plot }
}

/** Lines and numbers along both axes; `ticks`: [fraction, text]. */
function axes ({ context, plot }, x, y) {
  context.lineWidth = 1
  context.textBaseline = 'middle'
  context.textAlign = 'right'
  for (const [at, text] of y.ticks) {
    const place = Math.round(plot.y + plot.height * (1 - at)) + 0.5
    context.strokeStyle = style(at === 0 ? '--line' : '--grid')
    context.beginPath()
    context.moveTo(plot.x, place)
    context.lineTo(plot.x + plot.width, place)
    context.stroke()
    context.fillStyle = style('--soft')
    context.fillText(text, plot.x - 8, place)
  }
  context.textBaseline = 'top'
  for (const [at, text] of x.ticks) {
    const place = plot.x + plot.width * at
    context.strokeStyle = style('--line')
    context.beginPath()
    context.moveTo(Math.round(place) + 0.5, plot.y + plot.height)
    context.lineTo(Math.round(place) + 0.5, plot.y + plot.height + 4)
    context.stroke()
    context.textAlign = at === 0 ? 'left' : at === 1 ? 'right' : 'center'
    context.fillText(text, place, plot.y + plot.height + 7)
  }
  context.fillStyle = style('--ink')
  context.textAlign = 'center'
  context.textBaseline = 'bottom'
  context.fillText(x.label, plot.x + plot.width / 2, plot.y + plot.height + MARGIN.bottom)
  context.save()
  context.translate(13, plot.y + plot.height / 2)
  context.rotate(-Math.PI / 2)
  context.textBaseline = 'middle'
  context.fillText(y.label, 0, 0)
  context.restore()
}

function brushed ({ context }, { x, y, width, height }) {
  context.fillStyle = `rgba(${style('--brush')}, 0.12)`
  context.strokeStyle = `rgba(${style('--brush')}, 0.9)`
  context.fillRect(x, y, width, height)
  context.strokeRect(Math.round(x) + 0.5, Math.round(y) + 0.5, Math.round(width) - 1, Math.round(height) - 1)
}

/** Round steps up to a number, at most five, as ticks. */
function countTicks (most) {
  const power = 10 ** Math.floor(Math.log10(Math.max(most, 1)))
  const step = Math.max([0.2, 0.5, 1, 2].map(part => part * power).find(step => most / step <= 5) ?? power, 1)
  const top = Math.max(Math.ceil(most / step), 1) * step
  return { top, ticks: Array.from({ length: Math.round(top / step) + 1 }, (_, i) => [i * step / top, count.format(i * step)]) }
}

function drawHistogram () {
  const on = surface(find('histogram'))
  const { context, plot } = on
  const { top, ticks } = countTicks(Math.max(...bins))
  const every = plot.width < 480 ? 6 : 3
  const x = { label: 'departure, hour of the day', ticks: [] }
  for (let hour = 0; hour <= 24; hour += every) x.ticks.push([hour / 24, `${hour}:00`])
  axes(on, x, { label: 'flights in 15 min', ticks })
  const wide = plot.width / BINS
  const gap = wide > 4 ? 1 : 0.5
  for (let i = 0; i < BINS; i++) {
    const chosen = !hours || (i >= hours.from && i < hours.to)
    context.fillStyle = style(chosen ? '--accent' : '--rest')
    const tall = bins[i] / top * plot.height
    context.fillRect(plot.x + i * wide + gap / 2, plot.y + plot.height - tall, wide - gap, tall)
  }
  if (hours) brushed(on, { x: plot.x + hours.from * wide, y: plot.y, width: (hours.to - hours.from) * wide, height: plot.height })
}

// From few flights in a cell to many.
const RAMPS = {
  light: [[158, 202, 225], [66, 146, 198], [8, 81, 156], [4, 30, 74]],
  dark: [[52, 128, 204], [94, 172, 240], [170, 216, 255], [244, 250, 255]]
}

function ramp (share) {
  const colors = RAMPS[dark.matches ? 'dark' : 'light']
  const at = clamp(share, 0, 1) * (colors.length - 1)
  const i = Math.min(Math.floor(at), colors.length - 2)
  return colors[i].map((from, k) => from + (colors[i + 1][k] - from) * (at - i))
}

const image = document.createElement('canvas')
image.width = COLUMNS
image.height = LINES

function paintCells () {
  const pixels = image.getContext('2d').createImageData(COLUMNS, LINES)
  const rest = dark.matches ? [104, 118, 132] : [158, 169, 180]
  const shades = Array.from({ length: 64 }, (_, i) => ramp(i / 63))
  const scale = 63 / Math.log1p(most)
  for (let y = 0; y < LINES; y++) {
    for (let x = 0; x < COLUMNS; x++) {
      const chosen = cells[y * COLUMNS + x]
      const all = allCells[y * COLUMNS + x]
      if (all === 0) continue
      const at = 4 * ((LINES - 1 - y) * COLUMNS + x)
      const [red, green, blue] = chosen ? shades[Math.round(Math.log1p(chosen) * scale)] : rest
      pixels.data.set([red, green, blue, chosen ? 255 : 110 + 120 * Math.log1p(all) / Math.log1p(most)], at)
    }
  }
  image.getContext('2d').putImageData(pixels, 0, 0)
}

const DELAYS = {
  label: 'delay in minutes',
  ticks: [-60, 0, 60, 120, 180, 240].map(minutes =>
    [(minutes - MINUTES.from) / (MINUTES.to - MINUTES.from), minutes === 240 ? '≥ 240' : minutes === -60 ? '≤ −60' : String(minutes)])
}

function drawScatter () {
  const on = surface(find('scatter'))
  const { context, plot } = on
  const every = plot.width < 480 ? 2000 : 1000
  const x = { label: 'distance in miles', ticks: [] }
  for (let miles = MILES.from; miles <= MILES.to; miles += every) x.ticks.push([miles / MILES.to, count.format(miles)])
  axes(on, x, DELAYS)
  paintCells()
  context.imageSmoothingQuality = 'high'
  context.drawImage(image, plot.x, plot.y, plot.width, plot.height)
  drawLegend(on)
  if (!area) return
  const wide = plot.width / COLUMNS
  const tall = plot.height / LINES
  brushed(on, {
    x: plot.x + area.left * wide, y: plot.y + plot.height - area.to * tall,
    width: (area.right - area.left) * wide, height: (area.to - area.from) * tall
  })
}

function drawLegend ({ context, plot }) {
  const width = 150
  const x = plot.x + plot.width - width - 8
  const y = plot.y + 22
  for (let i = 0; i < width; i++) {
    context.fillStyle = `rgb(${ramp(i / (width - 1)).join(' ')})`
    context.fillRect(x + i, y, 1.5, 8)
  }
  context.fillStyle = style('--soft')
  context.textBaseline = 'bottom'
  context.textAlign = 'left'
  context.fillText('flights in 10 mi × 1 min', x, y - 3)
  context.textBaseline = 'top'
  for (let number = 1; number <= most; number *= 10) {
    context.textAlign = number === 1 ? 'left' : 'center'
    context.fillText(count.format(number), x + (width - 1) * Math.log1p(number) / Math.log1p(most) - (number === 1 ? 4 : 0), y + 11)
  }
}

let asked
function draw () {
  asked ??= requestAnimationFrame(() => {
    asked = undefined
    drawHistogram()
    drawScatter()
  })
}

// ---- brushing ----

/** Where a pointer is in a canvas' plot, both from 0 to 1, upwards. */
function place (canvas, event) {
  const box = canvas.getBoundingClientRect()
  const width = box.width - MARGIN.left - MARGIN.right
  const height = box.height - MARGIN.top - MARGIN.bottom
  return {
    x: clamp((event.clientX - box.left - MARGIN.left) / width, 0, 1),
    y: clamp(1 - (event.clientY - box.top - MARGIN.top) / height, 0, 1)
  }
}

/** Calls `set(from, to)` with two places while something is dragged, and with nothing after a click. */
function onDrag (canvas, set) {
  let start
  canvas.addEventListener('pointerdown', event => {
    start = { ...place(canvas, event), at: event }
    canvas.setPointerCapture(event.pointerId)
  })
  canvas.addEventListener('pointermove', event => {
    if (start === undefined) return
    const moved = Math.hypot(event.clientX - start.at.clientX, event.clientY - start.at.clientY)
    if (moved < KEPT && !start.moved) return
    start.moved = true
    set(start, place(canvas, event))
    choose()
    draw()
  })
  const end = () => {
    if (start && !start.moved) {
      set()
      choose()
      draw()
    }
    start = undefined
  }
  canvas.addEventListener('pointerup', end)
  canvas.addEventListener('pointercancel', () => { start = undefined })
}

/** [first, end) of the steps, of `many`, between two fractions; at least one step. */
function steps (from, to, many) {
  const first = clamp(Math.round(Math.min(from, to) * many), 0, many - 1)
  return [first, clamp(Math.round(Math.max(from, to) * many), first + 1, many)]
}

onDrag(find('histogram'), (start, now) => {
  if (!start) return void (hours = undefined)
  const [from, to] = steps(start.x, now.x, BINS)
  hours = { from, to }
})
onDrag(find('scatter'), (start, now) => {
  if (!start) return void (area = undefined)
  const [left, right] = steps(start.x, now.x, COLUMNS)
  const [from, to] = steps(start.y, now.y, LINES)
  area = { left, right, from, to }
})

function clear () {
  hours = area = undefined
  choose()
  draw()
}
find('clear').addEventListener('click', clear)
addEventListener('keydown', event => { if (event.key === 'Escape') clear() })
addEventListener('resize', draw)
dark.addEventListener('change', draw)

choose()
draw()
requestAnimationFrame(() => requestAnimationFrame(() => { document.documentElement.dataset.drawn = 'yes' }))
