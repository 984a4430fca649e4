// A headless Chromium, driven over a pipe by the DevTools protocol: no port, no package. Messages are
// JSON that end in a NUL byte.

import { spawn, spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'

export const DEADLINE = 1000 * Number(process.env.GPUBUF_TEST_DEADLINE ?? 60)

const NAMES = [process.env.CHROMIUM, 'chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable']

/** The program, or undefined. */
export const chromium = NAMES.filter(Boolean).find(name => name.includes('/')
  ? existsSync(name)
  : spawnSync('sh', ['-c', `command -v ${name}`]).status === 0)

/** An expression: whether the page hears what happens. */
export const LIVE = "document.querySelector('#connection')?.dataset.kind === 'live'"

/** Without the blanks of typography. */
export const plain = text => (text ?? '').replace(/[\u00a0\u202f]/g, ' ')

export const withChromium = { skip: chromium ? false : 'chromium is not installed' }

/** Polls until `condition` gives something; the deadline is for what will never be. */
export async function until (condition, what = String(condition)) {
  const end = Date.now() + DEADLINE
  for (;;) {
    const value = await condition()
    if (value) return value
    if (Date.now() > end) throw new Error(`waited in vain for: ${what}`)
    await new Promise(resolve => setTimeout(resolve, 20))
  }
}

export class Browser {
  static async start () {
    const browser = new Browser()
    browser.home = await mkdtemp(path.join(os.tmpdir(), 'gpubuf-page-'))
    browser.process = spawn(chromium, [
      '--headless=new', '--remote-debugging-pipe', `--user-data-dir=${browser.home}`,
      '--no-first-run', '--no-default-browser-check', '--disable-background-networking',
      '--disable-component-update', '--disable-sync', '--disable-extensions', '--disable-gpu',
      '--disable-dev-shm-usage', '--force-device-scale-factor=1', '--lang=en-US',
      // Else keys are dropped that come before a page has been drawn once.
      '--allow-pre-commit-input',
      // Root has no sandbox to use, nor has a user in a chroot; and only our own pages are opened here.
      '--no-sandbox', 'about:blank'
    ], { stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'] })
    browser.next = 1
    browser.waiting = new Map()
    browser.pages = new Map()
    let rest = ''
    browser.process.stdio[4].setEncoding('utf8').on('data', text => {
      const parts = (rest + text).split('\0')
      rest = parts.pop()
      for (const part of parts) browser.#take(JSON.parse(part))
    })
    browser.process.stdio[3].on('error', () => {})
    browser.ended = new Promise(resolve => browser.process.once('exit', resolve))
    browser.ended.then(() => browser.#failAll())
    return browser
  }

  #take ({ id, result, error, method, params, sessionId }) {
    if (id) {
      const { resolve, reject, method: asked, timer } = this.waiting.get(id) ?? {}
      if (!this.waiting.delete(id)) return // it came too late
      clearTimeout(timer)
      if (error) reject(new Error(`${asked}: ${error.message}`))
      else resolve(result)
    } else {
      this.pages.get(sessionId)?.event(method, params)
    }
  }

  /** A browser that has ended answers nothing any more: its questions fail, else a test would wait for ever. */
  #failAll () {
    for (const { reject, method, timer } of this.waiting.values()) {
      clearTimeout(timer)
      reject(new Error(`${method}: Chromium has ended`))
    }
    this.waiting.clear()
  }

  send (method, params = {}, sessionId, deadline = DEADLINE) {
    if (this.process.exitCode !== null || this.process.signalCode !== null) {
      return Promise.reject(new Error(`${method}: Chromium has ended`))
    }
    const id = this.next++
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.waiting.delete(id)
        reject(new Error(`${method}: Chromium does not answer`))
      }, deadline)
      this.waiting.set(id, { resolve, reject, method, timer })
      this.process.stdio[3].write(JSON.stringify({ id, method, params, sessionId }) + '\0')
    })
  }

  /** A new tab. `before` runs in it ahead of the page's own scripts. */
  async open (url, { width = 1280, height = 900, dark = false, motion = true, before = '' } = {}) {
    const { targetId } = await this.send('Target.createTarget', { url: 'about:blank' })
    const { sessionId } = await this.send('Target.attachToTarget', { targetId, flatten: true })
    const page = new Page(this, sessionId, targetId)
    this.pages.set(sessionId, page)
    for (const domain of ['Page', 'Runtime', 'Log']) await page.send(`${domain}.enable`)
    await page.send('Emulation.setFocusEmulationEnabled', { enabled: true })
    await page.resize(width, height)
    await page.prefer({ dark, motion })
    if (before) await page.send('Page.addScriptToEvaluateOnNewDocument', { source: before })
    await page.send('Page.navigate', { url })
    return page
  }

  async stop () {
    this.send('Browser.close').catch(() => {})
    const timer = setTimeout(() => this.process.kill('SIGKILL'), 5000)
    await this.ended
    clearTimeout(timer)
    await rm(this.home, { recursive: true, force: true, maxRetries: 5 })
  }
}

class Page {
  constructor (browser, session, target) {
    Object.assign(this, { browser, session, target, complaints: [] })
  }

  send (method, params, deadline) {
    return this.browser.send(method, params, this.session, deadline)
  }

  /** Failures in the page: exceptions, refused loads, violations of its policy. */
  event (method, params) {
    if (method === 'Tracing.dataCollected') this.trace?.push(...params.value)
    if (method === 'Tracing.tracingComplete') this.traced()
    if (method === 'Runtime.exceptionThrown') {
      this.complaints.push(params.exceptionDetails.exception?.description ?? params.exceptionDetails.text)
    } else if (method === 'Log.entryAdded' && params.entry.level === 'error') {
      this.complaints.push(`${params.entry.text} ${params.entry.url ?? ''}`)
    }
  }

  /** The value of an expression in the page, awaited. */
  async value (expression, deadline) {
    const { result, exceptionDetails } = await this.send('Runtime.evaluate', {
      expression, awaitPromise: true, returnByValue: true
    }, deadline)
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text)
    return result.value
  }

  text (selector) {
    return this.value(`document.querySelector(${JSON.stringify(selector)})?.innerText ?? null`)
  }

  /** Waits until an element says something that matches. */
  async says (selector, pattern) {
    let seen
    await until(async () => pattern.test(seen = plain(await this.text(selector))), `${selector} to say ${pattern}`)
      .catch(error => { throw new Error(`${error.message}; it says: ${seen}`) })
  }

  /** The rows that the table shows, each its cells. */
  rows () {
    return this.value(`[...document.querySelectorAll('#table .body .row:not([hidden])')]
      .sort((a, b) => a.ariaRowIndex - b.ariaRowIndex)
      .map(row => [...row.children].filter(cell => cell.offsetParent).map(cell => cell.textContent))`)
  }

  async names () {
    return (await this.rows()).map(row => row[0])
  }

  async showsNames (expected) {
    let seen
    await until(async () => JSON.stringify(seen = await this.names()) === JSON.stringify(expected), `rows ${expected}`)
      .catch(error => { throw new Error(`${error.message}; there are: ${seen}`) })
  }

  /** Waits until an expression in the page is true, and gives it. A document may go meanwhile, with or without an
   *  answer, and another come. */
  until (expression) {
    const left = /context was destroyed|Cannot find context|navigated or closed|does not answer/
    return until(() => this.value(expression, DEADLINE / 6).catch(error => {
      if (!left.test(error.message)) throw error
    }), expression)
  }

  /** Waits until the document is loaded, with its styles, and has been drawn. */
  async drawn () {
    await this.until("document.readyState === 'complete'")
    await this.until('new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))') // gives the time
  }

  resize (width, height) {
    return this.send('Emulation.setDeviceMetricsOverride', { width, height, deviceScaleFactor: 1, mobile: false })
  }

  prefer ({ dark = false, motion = true, forced = false }) {
    return this.send('Emulation.setEmulatedMedia', {
      features: [
        { name: 'prefers-color-scheme', value: dark ? 'dark' : 'light' },
        { name: 'prefers-reduced-motion', value: motion ? 'no-preference' : 'reduce' },
        { name: 'forced-colors', value: forced ? 'active' : 'none' }
      ]
    })
  }

  async press (key, { shift = false } = {}) {
    const text = key.length === 1 ? key : key === 'Enter' ? '\r' : undefined
    const code = { Enter: 13, Tab: 9, Escape: 27, ' ': 32, PageUp: 33, PageDown: 34, End: 35, Home: 36, ArrowLeft: 37, ArrowUp: 38, ArrowRight: 39, ArrowDown: 40 }[key]
    const event = { key, text, windowsVirtualKeyCode: code, modifiers: shift ? 8 : 0 }
    await this.send('Input.dispatchKeyEvent', { type: 'keyDown', ...event })
    await this.send('Input.dispatchKeyEvent', { type: 'keyUp', ...event })
  }

  async type (text) {
    for (const letter of text) await this.press(letter)
  }

  move (x, y) {
    return this.send('Input.dispatchMouseEvent', { type: 'mouseMoved', x, y })
  }

  async click (selector) {
    const [x, y] = await this.value(`(() => {
      const element = document.querySelector(${JSON.stringify(selector)})
      element.scrollIntoView({ block: 'center' })
      const box = element.getBoundingClientRect()
      return [box.x + box.width / 2, box.y + box.height / 2]
    })()`)
    for (const type of ['mousePressed', 'mouseReleased']) {
      await this.send('Input.dispatchMouseEvent', { type, x, y, button: 'left', clickCount: 1 })
    }
  }

  async drag (from, to) {
    const event = (type, [x, y], buttons) => this.send('Input.dispatchMouseEvent',
      { type, x, y, button: 'left', buttons, clickCount: 1, pointerType: 'mouse' })
    await event('mousePressed', from, 1)
    for (let i = 1; i <= 5; i++) await event('mouseMoved', from.map((start, k) => start + (to[k] - start) * i / 5), 1)
    await event('mouseReleased', to, 0)
  }

  /** Notes every task of the page's main thread, until `endTrace` gives their CPU time in ms. */
  async beginTrace () {
    this.trace = []
    await this.send('Tracing.start', {
      transferMode: 'ReportEvents',
      traceConfig: { includedCategories: ['disabled-by-default-devtools.timeline', '__metadata'], excludedCategories: ['*'] }
    })
  }

  async endTrace () {
    const done = new Promise(resolve => { this.traced = resolve })
    await this.send('Tracing.end')
    await done
    const { trace } = this
    this.trace = null
    const mains = new Set(trace.filter(({ name, args }) => name === 'thread_name' && args.name === 'CrRendererMain').map(({ pid, tid }) => `${pid} ${tid}`))
    return trace.filter(({ name, pid, tid }) => /RunTask$/.test(name) && mains.has(`${pid} ${tid}`)).map(({ tdur = 0 }) => tdur / 1000)
  }

  /** A picture of the window, or of the whole page. */
  async shoot (file, { whole = false } = {}) {
    const { data } = await this.send('Page.captureScreenshot', { format: 'png', captureBeyondViewport: whole })
    const picture = Buffer.from(data, 'base64')
    if (file) await writeFile(file, picture)
    return picture
  }

  async close () {
    this.browser.pages.delete(this.session)
    await this.browser.send('Target.closeTarget', { targetId: this.target })
  }
}
