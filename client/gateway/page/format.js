// Figures as people read them. Nothing here touches the document: the worker uses it too.

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB']
const SPACE = '\u00a0'

/** 12.0 MiB. Whole bytes below a kibibyte; one decimal above, none from a hundred. */
export function bytes (n) {
  if (!Number.isFinite(n)) return '–'
  let unit = 0
  while (n >= 1023.5 && unit < UNITS.length - 1) {
    n /= 1024
    unit++
  }
  return `${unit === 0 || n >= 99.95 ? Math.round(n) : n.toFixed(1)}${SPACE}${UNITS[unit]}`
}

const grouped = new Intl.NumberFormat('en', { useGrouping: true })

/** 100 000, with a space that does not break. */
export function count (n) {
  return Number.isFinite(n) ? grouped.format(n).replaceAll(',', '\u202f') : '–'
}

/** "1 object", "2 objects". */
export function counted (n, noun) {
  return `${count(n)}${SPACE}${noun}${n === 1 ? '' : 's'}`
}

/** Frames a second: whole ones, below ten with a decimal. */
export function fps (rate) {
  return rate > 0 && rate < 9.95 ? rate.toFixed(1) : count(Math.round(rate))
}

/** How long something has lasted: 4 s, 12 min, 3 h, 5 d. */
export function span (ms) {
  const seconds = Math.max(0, Math.round(ms / 1000))
  if (seconds < 60) return `${seconds}${SPACE}s`
  const minutes = Math.round(seconds / 60)
  if (minutes < 60) return `${minutes}${SPACE}min`
  const hours = Math.round(minutes / 60)
  if (hours < 48) return `${hours}${SPACE}h`
  return `${Math.round(hours / 24)}${SPACE}d`
}

/** How long ago something was; what is at most a second old is "now". */
export function ago (ms) {
  return ms < 1500 ? 'now' : `${span(ms)} ago`
}

/** Time of day by the reader's own clock. */
export function clock (ms) {
  const date = new Date(ms)
  return [date.getHours(), date.getMinutes(), date.getSeconds()]
    .map(part => String(part).padStart(2, '0')).join(':')
}

/** Of a hundred, without pretending: "<1 %" for what is there and rounds to nothing. */
export function percent (part, whole) {
  if (!(whole > 0)) return '–'
  const value = 100 * part / whole
  return value > 0 && value < 1 ? `<1${SPACE}%` : `${Math.round(value)}${SPACE}%`
}

/** An object's name; of what happens to private ones no name may be told. */
export function title (object) {
  return object.name ?? 'a private object'
}
