#!/usr/bin/env node
'use strict'
// The programs that come with the package, by the name that they are called by: gpubufd (`npx gpubufd serve` is
// `gpubufd --supervise`), gpubufctl and gpubufd-gateway.
const { spawn } = require('node:child_process')
const fs = require('node:fs')
const path = require('node:path')

const name = path.basename(process.argv[1]).replace(/\.cjs$/, '')
const serves = name === 'gpubufd' && process.argv[2] === 'serve'
const words = serves ? ['--supervise', ...process.argv.slice(3)] : process.argv.slice(2)
const file = path.join(__dirname, '..', 'prebuilds', `linux-${process.arch}`, name)
if (!fs.existsSync(file)) {
  console.error(`${name}: this package was built without it (${file}): install what npm has, or the daemon's own package`)
  process.exit(2)
}
const child = spawn(file, words, { stdio: 'inherit' })
const signals = ['SIGHUP', 'SIGINT', 'SIGTERM']
for (const signal of signals) process.on(signal, () => child.kill(signal))
child.on('exit', (status, signal) => {
  for (const caught of signals) process.removeAllListeners(caught)
  if (signal) process.kill(process.pid, signal)
  else process.exit(status)
})
