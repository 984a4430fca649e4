'use strict'

const native = require('./native.cjs')
const { connect, Client } = require('./client.cjs')
const { SharedObject, Bytes, NDArray, Column, Table, Bundle } = require('./objects.cjs')
const { classes } = require('./errors.cjs')
const { View } = require('./views.cjs')
const { StreamWriter, StreamReader } = require('./streams.cjs')
const { setArrow } = require('./to-arrow.cjs')

module.exports = {
  connect, Client, SharedObject, Bytes, NDArray, Column, Table, Bundle, View, StreamWriter, StreamReader, ...classes, setArrow,
  version: native.version
}
