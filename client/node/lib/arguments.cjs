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

const DAY_MS = 86_400_000

/** Milliseconds to wait, at most the protocol's limit. Infinity is more. */
function milliseconds (value) {
  if (number(value === Infinity ? DAY_MS + 1 : value, 'timeout') <= DAY_MS) return value ?? 0
  throw new RangeError(`timeout is more than ${DAY_MS} ms, a day: wait again after that, or use watch()`)
}

function text (value, what) {
  if (typeof value !== 'string') throw new TypeError(`${what} is not a string`)
  return value
}

/** The version of a name in a request's parameters; without both it is the current one. */
function versionOf ({ version, label }) {
  if (label !== undefined) text(label, 'label')
  return { version: version === undefined ? undefined : number(version, 'version'), label }
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

module.exports = { number, milliseconds, versionOf, text, isPattern, matcher }
