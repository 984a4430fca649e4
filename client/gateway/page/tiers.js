// The tiers that objects are spilled to: shared by all devices, each with its bar.

import { bytes, percent } from './format.js'
import { setText } from './lists.js'

export class Tiers {
  constructor (table, nothing) {
    this.table = table
    this.nothing = nothing
    this.body = table.tBodies[0]
  }

  show (tiers) {
    this.table.hidden = tiers.length === 0
    this.nothing.hidden = tiers.length > 0
    while (this.body.rows.length > tiers.length) this.body.deleteRow(-1)
    tiers.forEach(({ tier, used, capacity, fault }, i) => {
      const [name, share, held, most] = (this.body.rows[i] ?? this.#addRow()).cells
      const [track, part] = share.children
      setText(name, tier)
      track.firstChild.style.width = `${capacity && 100 * used / capacity}%`
      setText(part, percent(used, capacity))
      setText(held, bytes(used))
      setText(most, fault ? `takes nothing: ${fault}` : `of ${bytes(capacity)}`)
      most.classList.toggle('fault', Boolean(fault))
    })
  }

  #addRow () {
    const row = this.body.insertRow()
    const name = document.createElement('th')
    name.scope = 'row'
    row.append(name)
    const track = Object.assign(document.createElement('span'), { className: 'track' })
    track.append(document.createElement('i'))
    row.insertCell().append(track, Object.assign(document.createElement('span'), { className: 'share' }))
    row.insertCell().className = 'number'
    row.insertCell().className = 'number quiet'
    return row
  }
}
