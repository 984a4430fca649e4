// examples/flights: Python publishes, the server serves, and a real browser draws and brushes. Pictures are
// left in build/node/flights for people to look at.

import assert from 'node:assert/strict'
import { execFile, spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { cp, mkdir, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import path from 'node:path'
import readline from 'node:readline'
import test, { after } from 'node:test'
import { promisify } from 'node:util'
import { PACKAGE, ROOT, arrow, data, fixture } from './harness.mjs'

const { Browser, chromium } = await import(path.join(ROOT, 'tests', 'page', 'browser.mjs'))

const { daemon } = await fixture()
const PYTHON = process.env.GPUBUF_PYTHON ?? 'python3'
const OUTPUT = path.join(PACKAGE, '..', '..')
const environment = { ...process.env, GPUBUFD_SOCKET: daemon.socket, PYTHONPATH: path.join(OUTPUT, 'python'), PYTHONDONTWRITEBYTECODE: '1' }
const publish = (...words) => promisify(execFile)(PYTHON, [path.join(ROOT, 'examples', 'flights', 'publish.py'), ...words], { env: environment })

const skip = !arrow
  ? 'apache-arrow is not installed'
  : !existsSync(path.join(OUTPUT, 'python')) ? 'the package for Python is not built' : chromium ? false : 'there is no Chromium'

// As a program of somebody's, with the packages in its node_modules.
const place = path.join(PACKAGE, '..', `flights-${process.pid}`)
const pictures = path.join(PACKAGE, '..', 'flights')
let server, browser
after(async () => {
  server?.kill()
  await browser?.stop()
  await rm(place, { recursive: true, force: true })
})

const expected = arrow?.tableFromIPC(await readFile(data('flights-200k.arrow')))
const [time, distance, delay] = expected ? ['time', 'distance', 'delay'].map(name => expected.getChild(name).toArray()) : []

/** How many flights a condition holds for. */
function many (condition) {
  let sum = 0
  for (let i = 0; i < time.length; i++) sum += condition(time[i], distance[i], delay[i])
  return sum
}

test('published by Python, drawn and brushed in a browser', { skip, timeout: 180_000 }, async () => {
  assert.match((await publish('host')).stdout, /^flights: 200000 rows of delay, distance, time on host/)
  await cp(path.join(ROOT, 'examples', 'flights'), place, { recursive: true })
  await mkdir(path.join(place, 'node_modules'))
  await symlink(PACKAGE, path.join(place, 'node_modules', 'gpubufd'))
  await mkdir(pictures, { recursive: true })
  server = spawn(process.execPath, [path.join(place, 'server.mjs'), '0'], { env: environment, stdio: ['ignore', 'pipe', 'inherit'] })
  const address = (await readline.createInterface({ input: server.stdout })[Symbol.asyncIterator]().next()).value
  browser = await Browser.start()
  const page = await browser.open(address, { width: 1140, height: 840 })
  await page.until('document.documentElement?.dataset.drawn === "yes"')
  assert.match(await page.value('document.getElementById("source").textContent'), /^200,000 rows/)
  const status = () => page.value('document.getElementById("status").textContent')
  const rectangle = id => page.value(`(({ left, top, width, height }) => ({ left, top, width, height }))(document.getElementById('${id}').getBoundingClientRect())`)
  /** How many points of a canvas are of a color that is no grey. */
  const colored = id => page.drawn().then(() => page.value(`(() => {
    const canvas = document.getElementById('${id}')
    const { data } = canvas.getContext('2d').getImageData(74, 14, canvas.width - 90, canvas.height - 60)
    let sum = 0
    for (let i = 0; i < data.length; i += 4) sum += data[i + 3] > 128 && data[i + 2] - data[i] > 60
    return sum
  })()`))
  const take = name => page.drawn().then(() => page.shoot(path.join(pictures, `${name}.png`)))
  assert.equal(await status(), '200,000 of 200,000 flights')
  await take('light')
  // A slow machine says more, and the plots stay where they are all the same.
  await page.value("document.getElementById('source').firstChild.data = document.getElementById('source').textContent.replace(/\\d+ ms/, '1234567 ms')")
  const whole = await colored('scatter')
  assert.ok(whole > 20_000, `${whole} points`)

  // From 6:00 to 9:00 by the axis: 72 px to its left, 14 to its right.
  const histogram = await rectangle('histogram')
  const hour = at => histogram.left + 72 + (histogram.width - 86) * at / 24
  await page.drag([hour(6), histogram.top + 60], [hour(9), histogram.top + 90])
  const morning = many(hours => hours >= 6 && hours < 9)
  assert.equal(await status(), `${morning.toLocaleString('en')} of 200,000 · 06:00 to 09:00`)
  const some = await colored('scatter')
  assert.ok(some > 1000 && some < whole * 0.8, `${some} of ${whole} points`)
  await take('light-hours')

  // And of these the long and late ones: what both brushes have chosen.
  const scatter = await rectangle('scatter')
  const at = (miles, minutes) => [scatter.left + 72 + (scatter.width - 86) * miles / 5000,
    scatter.top + 12 + (scatter.height - 52) * (1 - (minutes + 60) / 300)]
  await page.drag(at(1000, 30), at(2000, 120))
  const both = many((hours, miles, minutes) => hours >= 6 && hours < 9 && miles >= 1000 && miles < 2000 && minutes >= 30 && minutes < 120)
  assert.equal(await status(), `${both.toLocaleString('en')} of 200,000 · 06:00 to 09:00 · 1,000 to 2,000 mi · 30 to 120 min`)
  const few = await colored('scatter')
  assert.ok(few > 100 && few < some / 2, `${few} of ${some} points`)
  await take('light-both')
  await page.prefer({ dark: true })
  await take('dark-both')
  // A click clears a brush, Escape both.
  await page.drag([hour(3), histogram.top + 60], [hour(3), histogram.top + 60])
  const late = many((_, miles, minutes) => miles >= 1000 && miles < 2000 && minutes >= 30 && minutes < 120)
  assert.equal(await status(), `${late.toLocaleString('en')} of 200,000 · 1,000 to 2,000 mi · 30 to 120 min`)
  await page.value('dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" }))')
  assert.equal(await status(), '200,000 of 200,000 flights')
  await take('dark')
  await page.prefer({})
  await page.resize(420, 900)
  await take('narrow')
  assert.ok(await page.value('document.documentElement.scrollWidth <= innerWidth'), 'it is wider than the screen')
  assert.deepEqual(page.complaints, [])

  await page.send('Page.navigate', { url: `${address}?name=none` })
  const problem = 'document.getElementById("problem")?.textContent'
  await page.until(problem)
  assert.match(await page.value(problem), /"none" could not be read: there is no object "none"/)
  server.kill('SIGTERM')
  assert.equal(await new Promise(resolve => server.once('exit', resolve)), 0)
})

test('the reader of Arrow files reads what Arrow does', { skip: arrow ? false : 'apache-arrow is not installed' }, async t => {
  const program = `import json, sys, zlib
sys.path.insert(0, ${JSON.stringify(path.join(ROOT, 'examples', 'flights'))})
import arrow_file
print(json.dumps({name: [str(array.dtype), len(array), zlib.crc32(array.tobytes())] for name, array in arrow_file.read(sys.argv[1]).items()}))`
  const read = async file => JSON.parse((await promisify(execFile)(PYTHON, ['-c', program, file], { env: environment })).stdout)
  try {
    await promisify(execFile)(PYTHON, ['-c', 'import numpy'])
  } catch {
    return t.skip('NumPy is not installed')
  }
  const got = await read(data('flights-200k.arrow'))
  assert.deepEqual(Object.entries(got).map(([name, [dtype, rows]]) => [name, dtype, rows]),
    [['delay', 'int16', 200_000], ['distance', 'int16', 200_000], ['time', 'float32', 200_000]])
  // In several batches, the same.
  const batches = [0, 70_000, 200_000].slice(1).flatMap((end, i) => expected.slice([0, 70_000][i], end).batches)
  const file = path.join(daemon.directory, 'batches.arrow')
  await writeFile(file, arrow.RecordBatchFileWriter.writeAll(batches).toUint8Array(true))
  assert.deepEqual(await read(file), got)
})
