#!/usr/bin/env node
// Serves on loopback the page of this directory, apache-arrow for it, and shared tables:
//
//   npm install gpubufd apache-arrow
//   python3 publish.py && node server.mjs [PORT]

import { createReadStream } from 'node:fs'
import http from 'node:http'
import { createRequire } from 'node:module'
import path from 'node:path'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { RecordBatchStreamWriter } from 'apache-arrow'
import { connect } from 'gpubufd'

const HERE = import.meta.dirname ?? path.dirname(new URL(import.meta.url).pathname)
const arrow = path.dirname(createRequire(import.meta.url).resolve('apache-arrow'))

const FILES = {
  '/': [path.join(HERE, 'index.html'), 'text/html; charset=utf-8'],
  '/flights.js': [path.join(HERE, 'flights.js'), 'text/javascript; charset=utf-8'],
  '/apache-arrow.js': [path.join(arrow, 'Arrow.es2015.min.js'), 'text/javascript; charset=utf-8']
}

const client = await connect({ name: 'flights' })

/** Streams the table at /objects/NAME as Arrow record batches, from a GPU, too, and no faster than the page reads. */
async function sendTable (pathname, response) {
  const table = await client.open(decodeURIComponent(pathname.replace('/objects/', '')))
  try {
    response.setHeader('Content-Type', 'application/vnd.apache.arrow.stream')
    await pipeline(Readable.from(table.batches()), RecordBatchStreamWriter.throughNode(), response)
  } finally {
    table.release()
  }
}

const server = http.createServer((request, response) => {
  const { pathname } = new URL(request.url, 'http://server')
  const [file, type] = FILES[pathname] ?? []
  // Another site's name may point to loopback: its pages get nothing.
  if (!/^(127\.0\.0\.1|localhost)(:\d+)?$/.test(request.headers.host ?? '')) return response.writeHead(403).end()
  if (file !== undefined) return createReadStream(file).pipe(response.setHeader('Content-Type', type))
  sendTable(pathname, response).catch(error => {
    if (response.headersSent) return response.destroy()
    response.writeHead(error.kind === 'not_found' ? 404 : 500).end(JSON.stringify({ error: error.message }))
  })
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
