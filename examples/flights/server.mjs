#!/usr/bin/env node
// Serves on loopback the page of this directory, apache-arrow for it, and shared objects:
//
//   npm install gpubufd apache-arrow
//   python3 publish.py && node server.mjs [PORT]

import { createReadStream } from 'node:fs'
import http from 'node:http'
import { createRequire } from 'node:module'
import path from 'node:path'
import { connect } from 'gpubufd'
import { createHandler } from 'gpubufd/serve'

const HERE = import.meta.dirname ?? path.dirname(new URL(import.meta.url).pathname)
const arrow = path.dirname(createRequire(import.meta.url).resolve('apache-arrow'))

const FILES = {
  '/': [path.join(HERE, 'index.html'), 'text/html; charset=utf-8'],
  '/flights.js': [path.join(HERE, 'flights.js'), 'text/javascript; charset=utf-8'],
  '/apache-arrow.js': [path.join(arrow, 'Arrow.es2015.min.js'), 'text/javascript; charset=utf-8']
}

const client = await connect({ name: 'flights' })
const shared = createHandler(client)

const server = http.createServer((request, response) => {
  const { pathname } = new URL(request.url, 'http://server')
  const [file, type] = FILES[pathname] ?? []
  if (file === undefined) return shared(request, response) // /objects/flights
  response.setHeader('Content-Type', type)
  createReadStream(file).pipe(response)
})
server.listen(Number(process.argv[2] ?? 8080), '127.0.0.1', () => {
  console.log(`http://127.0.0.1:${server.address().port}/`)
})
for (const signal of ['SIGINT', 'SIGTERM']) {
  process.once(signal, () => {
    server.closeAllConnections?.()
    server.close(() => client.close())
  })
}
