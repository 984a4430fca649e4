// The page before a real daemon, over real HTTP: that both sides mean the same, and sign in.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { after, before, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { Browser, LIVE, chromium, until, withChromium } from './browser.mjs'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const BIN = path.resolve(ROOT, process.env.GPUBUF_BUILD ?? 'build', 'bin')
const PROGRAM = path.join(BIN, 'gpubufd')
const GATEWAY = path.join(BIN, 'gpubufd-gateway')
const withDaemon = withChromium.skip || existsSync(PROGRAM) ? withChromium : { skip: `${PROGRAM} is not built` }
const started = []
let browser

before(async () => { if (!withDaemon.skip) browser = await Browser.start() })
after(async () => {
  await browser?.stop()
  for (const daemon of started) await daemon.stop()
})

class Daemon {
  static async start (...options) {
    const daemon = new Daemon()
    started.push(daemon)
    daemon.directory = await mkdtemp(path.join(os.tmpdir(), 'gpubuf-page-'))
    daemon.socket = path.join(daemon.directory, 's')
    daemon.options = options
    await daemon.run('0')
    return daemon
  }

  async run (port) {
    this.errors = ''
    const ofGateway = this.options.includes('--http-token-file') ? this.options.slice(-2) : []
    this.process = this.#spawn(PROGRAM, this.options.filter(each => !ofGateway.includes(each)))
    this.gateway = this.#spawn(GATEWAY, ['--http', `127.0.0.1:${port}`, ...ofGateway])
    // Either may be the first: each serves without the other.
    const [, at] = await until(() => {
      for (const { exitCode, signalCode } of [this.process, this.gateway]) assert.equal(exitCode ?? signalCode, null, this.errors)
      return /listening socket=/.test(this.errors) && /serving http url=http:\/\/[^ ]*:(\d+)\//.exec(this.errors)
    }, 'the daemon and the gateway to serve')
    this.port = at
    this.url = `http://127.0.0.1:${at}/`
  }

  #spawn (program, options) {
    const child = spawn(program, ['--socket', this.socket, ...options], { stdio: ['ignore', 'ignore', 'pipe'] })
    child.stderr.setEncoding('utf8').on('data', data => { this.errors += data })
    child.ended = new Promise(resolve => child.once('exit', (...how) => resolve(how)))
    return child
  }

  /** The gateway goes in peace; the daemon by that signal. */
  async end (signal = 'SIGTERM') {
    for (const [child, how] of [[this.gateway, 'SIGTERM'], [this.process, signal]]) {
      if (child.exitCode === null && child.signalCode === null) child.kill(how)
    }
    assert.deepEqual(await this.gateway.ended, [0, null], this.errors)
    return this.process.ended
  }

  async stop () {
    const [code] = await this.end()
    await rm(this.directory, { recursive: true, force: true })
    assert.equal(code, 0, this.errors)
    assert.doesNotMatch(this.errors, /Sanitizer|runtime error:/)
  }

  /** A session. Descriptors that come with replies are dropped: nothing is mapped here. */
  connect () {
    return new Promise((resolve, reject) => {
      const socket = net.connect(this.socket)
      socket.once('error', reject).once('connect', () => resolve(new Session(socket)))
    })
  }
}

class Session {
  constructor (socket) {
    this.socket = socket
    this.waiting = new Map()
    this.next = 1
    let rest = ''
    socket.setEncoding('utf8').on('data', text => {
      const lines = (rest + text).split('\n')
      rest = lines.pop()
      for (const line of lines) {
        const { id, result, error } = JSON.parse(line)
        if (!id) continue
        const { resolve, reject } = this.waiting.get(id)
        this.waiting.delete(id)
        if (error) reject(new Error(error.message))
        else resolve(result)
      }
    })
  }

  call (method, params = {}) {
    const id = this.next++
    this.socket.write(JSON.stringify({ jsonrpc: '2.0', id, method, params }) + '\n')
    return new Promise((resolve, reject) => this.waiting.set(id, { resolve, reject }))
  }

  async put (name, bytes, more = {}) {
    const { lease, segments } = await this.call('create', { name, layout: { kind: 'bytes', bytes, data: {} }, mode: '0644', ...more })
    await this.call('seal', { lease, release: true })
    await this.unmap(segments)
  }

  /** Nothing was mapped; until it is said the bytes count as if. */
  async unmap (segments) {
    if (segments.length) await this.call('unmap', { segments: segments.map(segment => segment.id) })
  }
}

test('what a daemon holds, and what happens in it', withDaemon, async () => {
  const daemon = await Daemon.start('--device', 'host:64M', '--evict', 'drop')
  const session = await daemon.connect()
  await session.call('hello', { protocol: 1, client: 'page test' })
  await session.put('sales/price', 1 << 20)
  await session.put('secret', 4096, { mode: '0600' })
  const page = await browser.open(daemon.url)
  await page.until(LIVE)
  await page.showsNames(['sales/price'])
  await page.says('#hidden', /^1 private object not shown/)
  await page.says('#sum-private', /^\+ 1 private$/)
  await page.says('#sum-private-bytes', /^\+ 4\.0 KiB private$/)
  for (const [tier, shown] of [['device', /^1 object$/], ['host', /^0 of 1 object$/], ['', /^1 object$/]]) {
    await page.value(`document.querySelector('#filter-tier').value = '${tier}', document.querySelector('#filter').dispatchEvent(new Event('input'))`)
    await page.says('#shown', shown)
  }
  await page.says('.device .figure', /of 64\.0 MiB taken$/)
  await page.says('#no-tiers', /^There are none/)
  await page.says('#sessions', /page test\s+\d+\s+\d+\s+0/)
  await page.value("document.querySelector('.map').focus()")
  await page.press('Home')
  await page.says('.device .at', /^sales\/price · 1\.0 MiB · segment \d+ at 0 B · used/)

  await session.put('weather', 1 << 20, { evict: 'drop' })
  await page.showsNames(['sales/price', 'weather'])
  const { lease, segments } = await session.call('open', { name: 'weather' })
  await page.says('#sum-leases', /^1$/)
  await session.call('set', { name: 'weather', pinned: true })
  await page.says('#table .body', /weather[\s\S]*pinned/)
  await session.call('release', { lease })
  await session.unmap(segments)
  await session.call('set', { name: 'weather', pinned: false })
  await session.call('delete', { name: 'sales/price' })
  await page.showsNames(['weather'])
  // Something large takes the room of what may go.
  await session.put('large', 63 << 20)
  await page.showsNames(['large'])
  await page.says('#recent', /evicted\s+weather[\s\S]*deleted\s+sales\/price/)
  await page.says('#timeline-sum', /[12] evicted/)
  assert.deepEqual(page.complaints, [])

  // It is killed, and another one comes.
  await daemon.end('SIGKILL')
  await page.until("document.querySelector('#connection').dataset.kind === 'lost'")
  await daemon.run(daemon.port)
  await page.until(LIVE)
  await page.says('#sum-objects', /^0$/)
  await page.says('#table .nothing', /holds no objects yet/)
  await page.close()
})

test('a stream, as its writer and a reader have it', withDaemon, async () => {
  const daemon = await Daemon.start('--device', 'host:64M')
  const page = await browser.open(daemon.url)
  await page.until(LIVE)
  await page.says('#sum-sessions', /^0$/)
  await page.says('#sum-own', /^\+ 2 of this page$/)
  const [writer, reader] = [await daemon.connect(), await daemon.connect()]
  await writer.call('hello', { protocol: 1, client: 'camera' })
  await reader.call('hello', { protocol: 1, client: 'train' })
  await page.says('#sum-sessions', /^2$/)
  const made = await writer.call('create', { name: 'cam', live: true, mode: '0644', layout: { kind: 'array', dtype: 'uint8', shape: [4, 64], data: {} } })
  await writer.call('release', { lease: made.lease })
  const written = await writer.call('open', { name: 'cam', access: 'write', exclusive: true })
  await writer.call('join', { lease: written.lease })
  const read = await reader.call('open', { name: 'cam' })
  await reader.call('join', { lease: read.lease, hold: 2 })
  await page.says('#table .body', /^cam[\s\S]*stream · 0 fps/)
  await page.click('#table .body .row')
  await page.says('#details', /Kind\s+stream\s+Frames\s+0, 0 a second\s+Generation\s+1\s+Leases\s+2 held\s+Written by\s+camera, pid \d+[\s\S]*Read by\s+train, pid [\s\S]*0 missed, (1 behind, )?0 of 2 held/)
  const claim = reader.call('open', { name: 'cam', access: 'write', exclusive: true, wait_ms: 600_000 })
  await page.says('#details', /Claim waits\s+train, pid \d+, session \d+, for /)
  await writer.call('release', { lease: written.lease })
  const { lease } = await claim
  await page.says('#details', /Generation\s+2\s+Leases\s+2 held[\s\S]*Claimed by\s+train/)
  await reader.call('release', { leases: [read.lease, lease] })
  await page.says('#details', /Written by\s+nobody\s+Leases\s+none/)
  assert.deepEqual(page.complaints, [])
  await page.close()
})

test('spilled and restored', withDaemon, async () => {
  const directory = await mkdtemp(path.join(os.tmpdir(), 'gpubuf-page-'))
  const daemon = await Daemon.start('--device', 'host:64M', '--tier', `disk:64M:${directory}`)
  const session = await daemon.connect()
  await session.put('cold', 3 << 20)
  const page = await browser.open(daemon.url)
  await page.until(LIVE)
  await page.showsNames(['cold'])
  await page.says('#tiers tbody', /^disk\s+0 %\s+0 B\s+of 64\.0 MiB/)
  await session.call('move', { name: 'cold' })
  await page.says('#tiers tbody', /^disk\s+5 %\s+3\.0 MiB\s+of 64\.0 MiB/)
  await page.says('.device .away', /^1 object with 3\.0 MiB spilled$/)
  await page.says('#table .body', /^cold[\s\S]*\bdisk\b/)
  const { lease, segments } = await session.call('open', { name: 'cold', wait_ms: 10000 })
  await page.says('#timeline-sum', /^1 spilled \(3\.0 MiB\), 0 evicted, 1 restored/)
  await page.says('#table .body', /^cold[\s\S]*\bdevice\b/)
  await page.value("document.querySelector('.map').focus()")
  await page.press('Home')
  await page.says('.device .at', /^cold · 3\.0 MiB · segment \d+ at 0 B · 1 lease$/)
  await session.call('release', { lease })
  await session.unmap(segments)
  await session.put('warm', 1 << 20)
  await rm(directory, { recursive: true })
  await assert.rejects(session.call('move', { name: 'warm' }), /cannot open/)
  await page.says('#tiers tbody', /^disk\s+\d+ %\s+\d[\d.]* MiB\s+takes nothing: cannot open/)
  assert.deepEqual(page.complaints, [])
  await page.close()
})

/** The form has the page's heading, colours and icon, and nothing of it is refused. */
async function looksLikeThePage (page) {
  await page.drawn()
  assert.deepEqual(await page.value("[...document.querySelectorAll('h1, h2')].map(heading => heading.textContent)"), ['gpubufd', 'Sign in'])
  assert.equal(await page.value("document.querySelector('#wrong').checkVisibility()"), false)
  const paper = () => page.value("getComputedStyle(document.documentElement).backgroundColor")
  assert.equal(await paper(), 'rgb(245, 246, 247)')
  await page.prefer({ dark: true })
  await until(async () => await paper() === 'rgb(14, 16, 18)', 'dark colours')
  await page.prefer({})
  const status = await page.value("Promise.all([...document.querySelectorAll('link, img')].map(async each => (await fetch(each.href ?? each.src)).status))")
  assert.deepEqual(status, [200, 200, 200])
  // That the page itself is refused the browser says; of what it loads, nothing is.
  assert.deepEqual(page.complaints.filter(said => !/401 .* http:\/\/[^/]*\/$/.test(said)), [])
}

/** As a person does it: the form is there to be seen, then keys. The address `#wrong` takes the focus when it
 *  is gone to, as the form is drawn. */
async function signIn (page, token) {
  await page.drawn()
  await page.value("document.querySelector('input[name=token]').focus()")
  await page.type(token)
  await page.until(`document.querySelector('input[name=token]').value === '${token}'`)
  await page.press('Enter')
}

test('with a token everything is shown, after signing in', withDaemon, async () => {
  const directory = await mkdtemp(path.join(os.tmpdir(), 'gpubuf-page-'))
  const file = path.join(directory, 'token')
  await writeFile(file, 'sixteen-characters-or-more\n', { mode: 0o600 })
  const daemon = await Daemon.start('--device', 'host:64M', '--http-token-file', file)
  const session = await daemon.connect()
  await session.put('secret', 4096, { mode: '0600' })
  const page = await browser.open(daemon.url)
  await page.until("!!document.querySelector('input[name=token]')")
  await looksLikeThePage(page)
  await page.until("document.activeElement.name === 'token'")
  await signIn(page, 'no-token-of-this-daemon')
  await page.until("location.hash === '#wrong' && document.querySelector('#wrong')?.checkVisibility()")
  await signIn(page, 'sixteen-characters-or-more')
  await page.until(LIVE)
  assert.equal(await page.value('location.pathname + location.hash'), '/')
  await page.showsNames(['secret'])
  assert.equal(await page.value("document.querySelector('#hidden').hidden"), true)
  await session.put('secret/other', 4096, { mode: '0600' })
  await page.showsNames(['secret', 'secret/other'])
  // The cookie holds until the daemon ends; the next one wants its token again.
  await daemon.end()
  await page.until("document.querySelector('#connection').dataset.kind === 'lost'")
  await daemon.run(daemon.port)
  await page.says('#connection', /wants its token/)
  await page.close()
  await rm(directory, { recursive: true })
})
