// A headless Chromium, driven by its own protocol over a pipe: nothing to install but the browser.

import { spawn } from 'node:child_process'
import { accessSync, constants } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'

const NAMES = ['chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable']

/** Where a browser is; undefined if there is none. */
export function findBrowser () {
  for (const directory of (process.env.PATH ?? '').split(':')) {
    for (const name of NAMES) {
      try {
        accessSync(path.join(directory, name), constants.X_OK)
        return path.join(directory, name)
      } catch {}
    }
  }
  return undefined
}

export class Browser {
  #process
  #directory
  #waiting = new Map()
  #lastId = 0
  #session
  problems = [] // what pages complained of

  static async start () {
    const browser = new Browser()
    browser.#directory = await mkdtemp(path.join(os.tmpdir(), 'gpubuf-chromium-'))
    browser.#process = spawn(findBrowser(), ['--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage',
      '--hide-scrollbars', '--force-device-scale-factor=1', '--remote-debugging-pipe',
      '--allow-pre-commit-input', // else what comes before the first frame is dropped
      `--user-data-dir=${browser.#directory}`, 'about:blank'],
    { stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'] })
    const [, , , input, output] = browser.#process.stdio
    input.on('error', () => {})
    let text = ''
    output.setEncoding('utf8').on('data', data => {
      text += data
      for (let end; (end = text.indexOf('\0')) >= 0; text = text.slice(end + 1)) browser.#receive(JSON.parse(text.slice(0, end)))
    })
    const { targetInfos } = await browser.call('Target.getTargets')
    const { sessionId } = await browser.call('Target.attachToTarget',
      { targetId: targetInfos.find(target => target.type === 'page').targetId, flatten: true })
    browser.#session = sessionId
    for (const domain of ['Page', 'Runtime', 'Log']) await browser.call(`${domain}.enable`)
    return browser
  }

  #receive ({ id, result, error, method, params }) {
    const waiting = this.#waiting.get(id)
    this.#waiting.delete(id)
    if (error) waiting?.reject(new Error(error.message))
    else waiting?.resolve(result)
    if (method === 'Runtime.exceptionThrown') this.problems.push(params.exceptionDetails.exception?.description ?? params.exceptionDetails.text)
    if (method === 'Log.entryAdded' && params.entry.level === 'error') this.problems.push(params.entry.text)
  }

  call (method, params = {}) {
    return new Promise((resolve, reject) => {
      const id = ++this.#lastId
      this.#waiting.set(id, { resolve, reject })
      this.#process.stdio[3].write(JSON.stringify({ id, method, params, sessionId: this.#session }) + '\0')
    })
  }

  async evaluate (expression) {
    const { result, exceptionDetails } = await this.call('Runtime.evaluate',
      { expression, awaitPromise: true, returnByValue: true })
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text)
    return result.value
  }

  async show (width, height, scheme) {
    await this.call('Emulation.setDeviceMetricsOverride', { width, height, deviceScaleFactor: 1, mobile: false })
    await this.call('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: scheme }] })
  }

  async drag (from, to) {
    const event = (type, [x, y], buttons) => this.call('Input.dispatchMouseEvent',
      { type, x, y, button: 'left', buttons, clickCount: 1, pointerType: 'mouse' })
    await event('mousePressed', from, 1)
    for (let i = 1; i <= 5; i++) {
      await event('mouseMoved', from.map((start, k) => start + (to[k] - start) * i / 5), 1)
    }
    await event('mouseReleased', to, 0)
  }

  /** Until what has happened so far is drawn and shown. */
  drawn () {
    return this.evaluate('new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))')
  }

  async screenshot () {
    await this.drawn()
    const { data } = await this.call('Page.captureScreenshot', { format: 'png' })
    return Buffer.from(data, 'base64')
  }

  async stop () {
    const ended = new Promise(resolve => this.#process.once('exit', resolve))
    this.#process.kill('SIGKILL')
    await ended
    await rm(this.#directory, { recursive: true, force: true, maxRetries: 10 })
  }
}
