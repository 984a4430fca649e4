// Spills, evictions and restores over time, as bars: one for each kind in each part of the time shown.
// Kinds differ by place and shade, not by hue alone; the sums stand beside it as text.

import { bytes, clock, count, counted, title } from './format.js'
import { makeTable, setAttribute, setText } from './lists.js'

const KINDS = ['spilled', 'evicted', 'restored']
const SVG = 'http://www.w3.org/2000/svg'
const PARTS = 60
const LANE = 40
const WIDTH = 960

export class Timeline {
  constructor (chart, sum, recent) {
    this.sum = sum
    this.#makeChart(chart)
    this.nothing = Object.assign(document.createElement('p'), { className: 'quiet' })
    this.scroll = Object.assign(document.createElement('div'), { className: 'scroll' })
    this.scroll.hidden = true
    recent.append(this.nothing, this.scroll)
    this.fill = makeTable(this.scroll, 'The last events', [
      { label: 'Time', kind: 'number' }, { label: 'Event' }, { label: 'Object', kind: 'long' },
      { label: 'Size', kind: 'number' }, { label: 'Device' }
    ])
  }

  #makeChart (parent) {
    const svg = element('svg', { viewBox: `0 0 ${WIDTH} ${KINDS.length * LANE + 1}`, role: 'img', preserveAspectRatio: 'none' })
    // Texts are not stretched with the bars: they are laid over them.
    const labels = Object.assign(document.createElement('div'), { className: 'lanes' })
    labels.setAttribute('aria-hidden', 'true')
    this.lanes = KINDS.map((kind, lane) => {
      const bottom = (lane + 1) * LANE
      svg.append(element('line', { class: 'base', x1: 0, x2: WIDTH, y1: bottom, y2: bottom }))
      const bars = Array.from({ length: PARTS }, (_, i) => {
        const bar = element('rect', { class: kind, x: i * WIDTH / PARTS + 1, width: WIDTH / PARTS - 2, y: bottom, height: 0 })
        svg.append(bar)
        return bar
      })
      const label = document.createElement('p')
      const most = document.createElement('span')
      label.append(kind, most)
      labels.append(label)
      return { bars, bottom, most }
    })
    this.svg = svg
    this.axis = Object.assign(document.createElement('p'), { className: 'axis quiet' })
    this.axis.setAttribute('aria-hidden', 'true')
    this.axis.append(...Array.from({ length: 3 }, () => document.createElement('span')))
    parent.append(labels, svg, this.axis)
  }

  show ({ start, width, kinds, since, recent, lost }, now, devices) {
    KINDS.forEach((kind, lane) => {
      const { counts } = kinds[kind]
      const most = Math.max(...counts)
      const { bars, bottom, most: label } = this.lanes[lane]
      bars.forEach((bar, i) => {
        const height = counts[i] ? Math.max(2, (LANE - 8) * counts[i] / most) : 0
        setAttribute(bar, 'height', height.toFixed(1))
        setAttribute(bar, 'y', (bottom - height).toFixed(1))
      })
      setText(label, most ? `up to ${count(most)}` : 'none')
    })
    const end = start + width * PARTS
    ;[start, (start + end) / 2, now].forEach((time, i) => setText(this.axis.children[i], clock(time)))
    const told = KINDS.map(kind => `${count(kinds[kind].count)} ${kind}` +
      (kinds[kind].count ? ` (${bytes(kinds[kind].bytes)})` : '')).join(', ')
    const text = `${told}${since > start ? `, since this page was opened at ${clock(since)}` : ''}.${lost ? ` ${counted(lost, 'event')} missed.` : ''}`
    setText(this.sum, text)
    setAttribute(this.svg, 'aria-label', text)
    this.nothing.hidden = recent.length > 0
    this.scroll.hidden = recent.length === 0
    setText(this.nothing, 'No object has been spilled, evicted, restored or deleted since this page was opened.')
    this.fill(recent.map(event => [
      clock(event.at), event.kind, title(event), bytes(event.bytes), devices.find(device => device.id === event.device)?.name ?? event.device ?? ''
    ]))
  }
}

function element (name, attributes) {
  const made = document.createElementNS(SVG, name)
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value)
  return made
}
