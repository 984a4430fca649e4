#!/usr/bin/env node
'use strict'
// gpubufd-serve: shared tables and columns for browsers, as Arrow IPC streams over HTTP.
//
//   GET /                          the list of objects, as JSON; ?prefix=
//   GET /objects/NAME              the object; ?columns=a,b &offset=ROW &length=ROWS
//   GET /bytes/NAME                the bytes of an object of kind bytes or bundle, or a Range of them
//   GET /live                      events, as server-sent events; ?prefix=
//
// On loopback it serves every client that can reach it. Any other address needs a token, which requests carry as
// `Authorization: Bearer TOKEN` or as ?token=. It can open the objects that its own user may open.

const http = require('node:http')
const { parseArgs } = require('node:util')
const { connect } = require('../lib/index.cjs')
const { createHandler, checkOwnToken, LOOPBACK } = require('../lib/serve.cjs')

const USAGE = `usage: gpubufd-serve [--socket PATH] [--host ADDRESS] [--port N] [--token TEXT] [--origin URL]
                     [--prefix TEXT] [--compress]
  --socket  the daemon's socket; default: $GPUBUFD_SOCKET, else where daemons listen
  --host    address to listen on, default 127.0.0.1; any but loopback needs a token
  --port    default 8080; 0: any free port
  --token   the token that requests must carry, at least 16 characters; default $GPUBUFD_SERVE_TOKEN
  --origin  the origin whose pages may read, too; "*": all
  --prefix  serve only objects whose names begin so
  --compress  compress tables for clients that accept gzip or zstd: for slow networks
`

/** Starts the server; { server, port, close }. */
async function serve ({ socket, host = '127.0.0.1', port = 8080, token, origin, prefix, compress }) {
  checkOwnToken(token)
  if (!LOOPBACK.test(host) && !token) throw new Error(`to listen on ${host}, which is not loopback, give a --token`)
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
  if (!Number.isInteger(port) || port < 0 || port > 65535) throw new Error(`--port is ${values.port}, not 0 to 65535`)
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
