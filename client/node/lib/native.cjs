'use strict'
// The addon: the file that GPUBUFD_ADDON names, else the prebuilt one for this platform.

const path = require('node:path')

const place = process.env.GPUBUFD_ADDON ||
  path.join(__dirname, '..', 'prebuilds', `${process.platform}-${process.arch}`, 'gpubufd.node')

try {
  module.exports = require(place)
} catch (error) {
  throw new Error(
    `gpubufd: no addon for ${process.platform}-${process.arch} could be loaded: ${error.message}`,
    { cause: error }
  )
}
