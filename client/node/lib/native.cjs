'use strict'
// The addon: the file that GPUBUFD_ADDON names, else the prebuilt one for this platform.

const path = require('node:path')

const place = process.env.GPUBUFD_ADDON ||
  path.join(__dirname, '..', 'prebuilds', `${process.platform}-${process.arch}`, 'gpubufd.node')

// The addon would end their process: they export libuv's names without the functions.
for (const runtime of ['bun', 'deno']) {
  if (process.versions[runtime]) {
    throw new Error(`gpubufd: ${runtime} ${process.versions[runtime]} has no libuv, which the addon waits by: use Node 18 or later`)
  }
}

try {
  module.exports = require(place)
} catch (error) {
  throw new Error(
    `gpubufd: no addon for ${process.platform}-${process.arch} could be loaded: ${error.message}`,
    { cause: error }
  )
}
