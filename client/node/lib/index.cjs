'use strict'

const native = require('./native.cjs')
const { connect, Client } = require('./client.cjs')
const { SharedObject, Bytes, NDArray, Column, Table } = require('./objects.cjs')
const { classes } = require('./errors.cjs')
const { setArrow } = require('./to-arrow.cjs')

module.exports = {
  connect, Client, SharedObject, Bytes, NDArray, Column, Table, ...classes, setArrow,
  version: native.version
}
