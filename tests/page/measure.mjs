// How fast the page is with many objects, in a real browser on this machine: the first paint, and how
// long it keeps people waiting while it is updated. large.test.mjs holds it to bounds.

import { performance } from 'node:perf_hooks'
import { until } from './browser.mjs'

/** Runs in the page, ahead of its own scripts. */
const watcher = `
  window.seen = { inputs: [], frames: new Set(), first: {}, from: 0 }
  for (const kind of ['keydown', 'pointermove', 'wheel']) {
    addEventListener(kind, event => seen.inputs.push([kind, performance.now() - event.timeStamp]), { capture: true, passive: true })
  }
  const figure = id => Number((document.getElementById(id)?.textContent ?? '').split(' of ')[0].replace(/\\D/g, ''))
  const look = () => {
    const now = performance.now()
    if (document.querySelector('#table .body .row:not([hidden])')) seen.first.rows ??= now
    if (figure('sum-objects') >= seen.expected) seen.first.all ??= now
    const frame = document.documentElement?.dataset.frames
    if (frame) seen.frames.add(frame)
    requestAnimationFrame(look)
  }
  requestAnimationFrame(look)
`

const percentile = (values, part) => [...values].sort((a, b) => a - b)[Math.min(values.length - 1, Math.floor(part * values.length))] ?? 0

/** How many times longer things take now than on a machine that has nothing else to do. */
export function busy () {
  const started = performance.now()
  const used = process.cpuUsage()
  while (performance.now() - started < 500);
  const { user, system } = process.cpuUsage(used)
  return Math.max(1, (performance.now() - started) * 1000 / (user + system))
}

/** Opens the page at `url`, which has that many objects, and uses it for some seconds. All in
 *  milliseconds: paints and delays by the clock, tasks of the main thread by their CPU time. */
export async function measure (browser, url, { objects, seconds = 5, begin = () => {} }) {
  const before = busy()
  const page = await browser.open('about:blank', { before: `${watcher}; seen.expected = ${objects}` })
  await page.beginTrace()
  await page.send('Page.navigate', { url })
  await until(() => page.value('window.seen?.first.all && document.querySelector(".map canvas")?.width > 300'), 'all objects')
  const first = await page.value("({ ...seen.first, paint: performance.getEntriesByName('first-contentful-paint')[0]?.startTime })")
  const loading = await page.endTrace()
  begin()
  await page.beginTrace()
  const map = await page.value("document.querySelector('.map').getBoundingClientRect().toJSON()")
  const table = await page.value("document.querySelector('#table').scrollIntoView({ block: 'end' }), document.querySelector('#table').getBoundingClientRect().toJSON()")
  const above = await page.value('scrollY')
  // Nobody does anything: what is shown is what comes.
  await page.value('seen.frames.clear()')
  const idle = performance.now()
  await new Promise(resolve => setTimeout(resolve, seconds * 500))
  const alone = await page.value('seen.frames.size') / ((performance.now() - idle) / 1000)
  await page.value("seen.inputs = []; seen.frames.clear(); document.querySelector('#table').focus({ preventScroll: true })")
  const started = performance.now()
  const sent = { keydown: 0, pointermove: 0, wheel: 0 }
  for (let i = 0; performance.now() - started < seconds * 1000; i++) {
    sent.keydown++
    await page.press(i % 40 < 20 ? 'PageDown' : 'PageUp')
    sent.pointermove++
    await page.move(map.x + map.width * ((i * 7) % 100) / 100, Math.max(60, map.y - above + map.height * ((i * 3) % 10) / 10))
    if (i % 4 === 0) {
      sent.wheel++
      await page.send('Input.dispatchMouseEvent', { type: 'mouseWheel', x: table.x + 100, y: table.y + 100, deltaX: 0, deltaY: i % 8 ? -400 : 400 })
    }
    await new Promise(resolve => setTimeout(resolve, 25))
  }
  const inputs = await page.value('seen.inputs')
  const tasks = await page.endTrace()
  const delays = inputs.map(([, delay]) => delay)
  const result = {
    'first paint': first.paint,
    'first rows': first.rows,
    'all objects': first.all,
    'longest task, loading': Math.max(0, ...loading),
    'longest task, updating': Math.max(0, ...tasks),
    'tasks seen': tasks.length,
    'frames a second': alone,
    'input delay, 99 of 100': percentile(delays, 0.99),
    'inputs sent': sent.keydown + sent.pointermove + sent.wheel,
    'keys lost': sent.keydown - inputs.filter(([kind]) => kind === 'keydown').length,
    'how busy the machine is': Math.max(before, busy()),
    complaints: page.complaints
  }
  await page.close()
  return result
}
