'use strict'
// Checks of arguments.

function number (value, what, missing = 0) {
  if (value === undefined) return missing
  if (typeof value === 'bigint') value = Number(value)
  if (typeof value !== 'number') throw new TypeError(`${what} is ${String(value)}, not a number`)
  if (!Number.isSafeInteger(value) || value < 0) {
    throw new RangeError(`${what} is ${value}, not a whole number of 0 or more`)
  }
  return value
}

function text (value, what) {
  if (typeof value !== 'string') throw new TypeError(`${what} is not a string`)
  return value
}

/** Whether a text is a pattern of names: as in Python only `*` and `?` make one, and `[` is itself. */
function isPattern (text) {
  return /[*?]/.test(text)
}

/** A test of whole names: `*` stands for any text, `?` for one character. */
function matcher (pattern) {
  const source = pattern.replace(/[\\^$.*+?()[\]{}|/]/g, part => ({ '*': '.*', '?': '.' })[part] ?? `\\${part}`)
  const test = new RegExp(`^${source}$`, 'su')
  return name => test.test(name)
}

module.exports = { number, text, isPattern, matcher }
