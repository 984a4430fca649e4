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

/** Whether a text is a pattern of names, as gpubufctl has them. */
function isPattern (text) {
  return /[*?[]/.test(text)
}

/** A test of whole names: `*` stands for any text, `?` for one character, `[a-c]` and `[!a-c]` for one of a set. */
function matcher (pattern) {
  const source = pattern.replace(/\\(.)|\[([!^]?)([^\]]+)\]|[*?]|[^]/gu, (part, escaped, not, set) => {
    if (set !== undefined) return `[${not ? '^' : ''}${set.replace(/[\\[\]^]/g, '\\$&')}]`
    if (escaped === undefined && part === '*') return '.*'
    if (escaped === undefined && part === '?') return '.'
    return (escaped ?? part).replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&')
  })
  try {
    const test = new RegExp(`^${source}$`, 'su')
    return name => test.test(name)
  } catch {
    throw new TypeError(`"${pattern}" is no pattern: a range in [] is the wrong way round`)
  }
}

module.exports = { number, text, isPattern, matcher }
