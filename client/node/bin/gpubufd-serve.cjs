#!/usr/bin/env node
'use strict'
// gpubufd-serve: shared tables and columns for browsers, as Arrow IPC streams over HTTP.
//
//   GET /                          what there is, as JSON; ?prefix=
//   GET /objects/NAME              the object; ?columns=a,b &offset=ROW &length=ROWS
//   GET /bytes/NAME                the content of one of kind bytes or bundle, as it is; also a Range of it
//   GET /live                      what happens, as server-sent events; ?prefix=
//
// On loopback it serves whoever can reach it; any other address takes a token, which is sent as
// `Authorization: Bearer TOKEN` or as ?token=. It may open what its own user may.

const http = require('node:http')
const { parseArgs } = require('node:util')
const { connect } = require('../lib/index.cjs')
const { createHandler, checkOwnToken, LOOPBACK } = require('../lib/serve.cjs')

const USAGE = `usage: gpubufd-serve [--socket PATH] [--host ADDRESS] [--port N] [--token TEXT] [--origin URL]
                     [--prefix TEXT] [--compress]
  --host    default 127.0.0.1; another one needs a token
  --port    default 8080; 0: any that is free
  --token   what clients have to show, 16 characters at least; also GPUBUFD_SERVE_TOKEN
  --origin  which pages of other servers may read; "*": all
  --prefix  serve only objects whose names begin so
  --compress  pack tables for clients that take gzip or zstd: for slow networks
`

/** Starts the server; { server, port, close }. */
async function serve ({ socket, host = '127.0.0.1', port = 8080, token, origin, prefix, compress }) {
  checkOwnToken(token)
  if (!LOOPBACK.test(host) && !token) throw new Error(`to listen on ${host} a token is needed: --token`)
  const client = await connect({ socket, name: 'gpubufd-serve' })
  const server = http.createServer(createHandler(client, { host, token, origin, prefix, compress }))
  await new Promise((resolve, reject) => server.once('error', reject).listen(port, host, resolve))
  return {
    server,
    port: server.address().port,
    close: async () => {
      server.closeAllConnections?.()
      await new Promise(resolve => server.close(resolve))
      client.close()
    }
  }
}

async function main () {
  const { values } = parseArgs({
    options: {
      socket: { type: 'string' },
      host: { type: 'string' },
      port: { type: 'string' },
      token: { type: 'string' },
      origin: { type: 'string' },
      prefix: { type: 'string' },
      compress: { type: 'boolean' },
      help: { type: 'boolean', short: 'h' }
    }
  })
  if (values.help) return void process.stdout.write(USAGE)
  const port = Number(values.port ?? 8080)
  if (!Number.isInteger(port) || port < 0 || port > 65535) throw new Error('--port is not from 0 to 65535')
  const host = values.host ?? '127.0.0.1'
  const running = await serve({ ...values, host, port, token: values.token ?? process.env.GPUBUFD_SERVE_TOKEN })
  console.log(`http://${host.includes(':') ? `[${host}]` : host}:${running.port}/`)
  for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => running.close())
}

module.exports = { serve }
if (require.main === module) {
  main().catch(error => {
    console.error(`gpubufd-serve: ${error.message}`)
    process.exitCode = 1
  })
}
