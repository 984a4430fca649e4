// Common parts of the tests: the package as it was built, a real daemon on a socket of its own, and what
// npm has where it could be reached.

import assert from 'node:assert/strict'
import { spawn, execFile } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { mkdtemp, readFile, readdir, readlink, rm } from 'node:fs/promises'
import { createRequire } from 'node:module'
import os from 'node:os'
import path from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import v8 from 'node:v8'
import { runInNewContext } from 'node:vm'
import { after } from 'node:test'

export const ROOT = process.env.GPUBUF_ROOT ?? path.resolve('.')
export const BUILD = path.resolve(process.env.GPUBUF_BUILD ?? path.join(ROOT, 'build'))
export const PACKAGE = path.resolve(
  process.env.GPUBUF_NODE_PACKAGE ?? path.join(ROOT, 'build', 'node', 'gpubufd'))
export const HERE = path.dirname(fileURLToPath(import.meta.url))

/** The module as `import` and `require` see it. */
export const gpubufd = await import(path.join(PACKAGE, 'lib', 'index.mjs'))
export const require = createRequire(path.join(PACKAGE, '..', 'anchor.cjs'))
export const { connect } = gpubufd

/** apache-arrow, or why it is not here. */
export const arrow = await import('apache-arrow').catch(() => undefined)
export const withArrow = { skip: arrow ? false : 'apache-arrow is not installed: npm could not be reached' }

const execute = promisify(execFile)
const DEADLINE = 1000 * Number(process.env.GPUBUF_TEST_DEADLINE ?? 60)

/** Polls until `condition` gives something; the deadline is for what will never be. */
export async function until (condition, what = String(condition)) {
  const end = Date.now() + DEADLINE
  for (;;) {
    const value = await condition()
    if (value) return value
    if (Date.now() > end) throw new Error(`waited in vain for: ${what}`)
    await new Promise(resolve => setTimeout(resolve, 5))
  }
}

export class Daemon {
  static async start (...options) {
    const daemon = new Daemon()
    await daemon.begin(...options)
    return daemon
  }

  async begin (...options) {
    this.directory = await mkdtemp(path.join(os.tmpdir(), 'gpubuf-'))
    this.socket = path.join(this.directory, 's')
    this.options = options.length ? options : ['--device', 'host:256M']
    await this.run()
  }

  async run (environment = {}) {
    this.errors = ''
    this.process = spawn(path.join(BUILD, 'bin', 'gpubufd'), ['--socket', this.socket, ...this.options],
      { stdio: ['ignore', 'ignore', 'pipe'], env: { ...process.env, ...this.environment, ...environment } })
    this.process.stderr.setEncoding('utf8').on('data', data => { this.errors += data })
    this.ended = new Promise(resolve => this.process.once('exit', (...how) => resolve(how)))
    await until(async () => {
      assert.equal(this.process.exitCode, null, this.errors)
      return connect({ socket: this.socket, reconnect: false }).then(client => {
        client.close()
        return true
      }, () => false)
    }, 'the daemon to listen')
  }

  /** kill -9. */
  async kill () {
    this.process.kill('SIGKILL')
    await this.ended
  }

  async stop () {
    if (this.process.exitCode === null && this.process.signalCode === null) {
      this.process.kill('SIGTERM')
      const [code] = await this.ended
      assert.equal(code, 0, this.errors)
      assert.doesNotMatch(this.errors, /Sanitizer|runtime error:/)
    }
    await rm(this.directory, { recursive: true, force: true })
  }

  /** Runs gpubufctl on it: the C library's side. */
  async ctl (...words) {
    const { stdout } = await execute(path.join(BUILD, 'bin', 'gpubufctl'), words, {
      env: { ...process.env, ...this.environment, GPUBUFD_SOCKET: this.socket }, maxBuffer: 64 << 20
    })
    return stdout
  }
}

const OUTPUT = path.join(PACKAGE, '..', '..') // the build without sanitizers, which Node and Python do not know

/** Why there is no simulated GPU; false: there is. */
export const noGpu = existsSync(path.join(OUTPUT, 'fakecuda', 'libcuda.so.1')) ? false : 'tests/fakecuda is not built'

/** A daemon with a simulated GPU, and the environment of its clients; for a whole file. */
export async function fixtureWithGpu () {
  const place = await mkdtemp(path.join(os.tmpdir(), 'gpubuf-gpu-'))
  const gpu = { FAKECUDA_DIR: place, LD_LIBRARY_PATH: path.join(OUTPUT, 'fakecuda') }
  const daemon = new Daemon()
  daemon.environment = { ...gpu, LD_LIBRARY_PATH: path.join(BUILD, 'fakecuda') }
  await daemon.begin('--device', 'cuda:0:64M', '--device', 'host:64M')
  after(async () => {
    await daemon.stop()
    await rm(place, { recursive: true, force: true })
  })
  return { daemon, gpu, place }
}

export const PYTHON = process.env.GPUBUF_PYTHON ?? 'python3'
export const PYTHONPATH = path.join(OUTPUT, 'python')

/** Why Python does not run with these modules and the package; false: it does. */
export async function withoutPython (modules) {
  if (!existsSync(path.join(PYTHONPATH, 'gpubufd/_core.abi3.so'))) return 'the package for Python is not built'
  return execute(PYTHON, ['-c', `import ${modules}`]).then(() => false, () => `Python lacks one of ${modules}`)
}

/** A process that answers each line of JSON with one, since what it imports takes longer than what it does. */
export function worker (program, words, environment) {
  const child = spawn(program, words, { env: { ...process.env, PYTHONPATH, ...environment }, stdio: ['pipe', 'pipe', 'inherit'] })
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]()
  let turn = Promise.resolve()
  after(async () => {
    child.stdin.end()
    await once(child, 'exit')
  })
  return words => (turn = turn.then(async () => {
    child.stdin.write(JSON.stringify(words) + '\n')
    return JSON.parse((await lines.next()).value)
  }))
}

/** A daemon for a whole file, and a way to connect that closes at its end. */
export async function fixture (...options) {
  const daemon = await Daemon.start(...options)
  const clients = []
  after(async () => {
    for (const client of clients) client.close()
    await daemon.stop()
  })
  return {
    daemon,
    connect: async more => {
      const client = await connect({ socket: daemon.socket, ...more })
      clients.push(client)
      return client
    }
  }
}

/** opened(value, work, options): publishes a value, and gives what the work makes of it; it is released then. */
export const opener = client => async (value, work, options) => {
  await client.put('value', value, { replace: true, ...options })
  const object = await client.open('value')
  try {
    return await work(object)
  } finally {
    object.release()
  }
}

/** Runs a script in a process of its own; { code, signal, stdout, stderr }. */
export async function run (script, environment = {}, words = []) {
  const source = `import { createRequire } from 'node:module'
    const gpubufd = createRequire(${JSON.stringify(import.meta.url)})(${JSON.stringify(path.join(PACKAGE, 'lib', 'index.cjs'))})
    const { connect } = gpubufd
    const collect = ${collect}
    ${script}`
  const child = spawn(process.execPath, [...words, '--input-type=module', '-e', source],
    { stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, ...environment } })
  let stdout = ''
  let stderr = ''
  child.stdout.setEncoding('utf8').on('data', data => { stdout += data })
  child.stderr.setEncoding('utf8').on('data', data => { stderr += data })
  const timer = setTimeout(() => child.kill('SIGKILL'), DEADLINE)
  const [code, signal] = await new Promise(resolve => child.once('close', (...how) => resolve(how)))
  clearTimeout(timer)
  return { code, signal, stdout, stderr }
}

/** Has garbage collected, in some turns of the loop. In a program of run() with --expose-gc; here after exposeGc(). */
export async function collect (turns = 20) {
  for (let i = 0; i < turns; i++) {
    globalThis.gc()
    await new Promise(resolve => setImmediate(resolve))
  }
}

export function exposeGc () {
  v8.setFlagsFromString('--expose-gc')
  globalThis.gc = runInNewContext('gc')
  return globalThis.gc
}

/** Open descriptors of this process. */
export async function descriptors () {
  const names = await readdir('/proc/self/fd')
  const targets = await Promise.all(names.map(name => readlink(`/proc/self/fd/${name}`).catch(() => '')))
  return targets.filter(target => /^\/memfd:|^socket:/.test(target)).length
}

/** Mappings of the daemon's memory. */
export async function mappings () {
  return (await readFile('/proc/self/maps', 'utf8')).split('\n').filter(line => line.includes('/memfd:')).length
}

export const data = name => path.join(ROOT, 'examples', 'data', name)
