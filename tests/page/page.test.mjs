// The page in a real browser, before a daemon that is none (fake.mjs) and does what each test wants.

import assert from 'node:assert/strict'
import net from 'node:net'
import { after, before, test } from 'node:test'
import { Browser, LIVE, chromium, plain, until, withChromium } from './browser.mjs'
import { FakeDaemon } from './fake.mjs'
import { hash } from '../../client/gateway/page/store.js'

const MIB = 1 << 20
let browser

before(async () => { if (chromium) browser = await Browser.start() })
after(() => browser?.stop())

/** A test of a page that is live, before a daemon as `prepare` makes it. It has nothing to complain of, unless the daemon
 *  goes away. */
function shows (name, prepare, body, { devices, goes = false, ...options } = {}) {
  test(name, withChromium, async () => {
    const daemon = new FakeDaemon({ devices })
    prepare(daemon)
    await daemon.start()
    const page = await browser.open(daemon.url, options)
    try {
      if (!daemon.silent) await page.until(`${LIVE} && document.documentElement.dataset.frames > 2`)
      await body(page, daemon)
      if (!goes) assert.deepEqual(page.complaints, [])
    } finally {
      await page.close()
      await daemon.stop()
    }
  })
}

/** A few objects, by name; sizes in MiB. In one segment of 64 MiB. */
function few (daemon) {
  daemon.put('sales/price', 16 * MIB, { leases: 2, cached: 3, used: Date.now() })
  daemon.put('sales/quantity', 8 * MIB, { used: Date.now() - 600_000 })
  daemon.put('weather', 24 * MIB, { pinned: true, uid: 1001, mode: '0644', evict: 'keep' })
  daemon.connectSessions(3)
}

const text = async (page, selector) => plain(await page.text(selector))
const rows = async page => (await page.rows()).map(row => row.map(plain))

/** The colour of the map's pixel at a part of its width, in a line. */
const pixel = (page, part, line) => page.value(`(() => {
  const map = document.querySelector('.map canvas')
  const copy = new OffscreenCanvas(map.width, map.height).getContext('2d')
  copy.drawImage(map, 0, 0)
  return [...copy.getImageData(Math.floor(${part} * map.width), ${line} * 18 + 7, 1, 1).data]
})()`)

shows('nothing yet', () => {}, async page => {
  assert.equal(await text(page, '#sum-objects'), '0')
  await page.says('#table .nothing', /holds no objects yet. This brings one: gpubufctl put NAME FILE$/)
  await page.says('#no-tiers', /gpubufd --tier disk:/)
  await page.says('.device .at', /Nothing is allocated/)
  // Only the gateway, whose sessions are marked and not counted.
  await page.says('#sessions', /901\s+gpubufd-gateway \(this page\)[\s\S]*902\s+gpubufd-gateway \(this page\)[\s\S]*Nobody else is connected/)
  assert.deepEqual([await text(page, '#sum-sessions'), await text(page, '#sum-own')], ['0', '+ 2 of this page'])
  await page.says('#recent', /No object has been spilled/)
  assert.equal(await page.value("document.querySelector('#table').ariaRowCount"), '1')
})

shows('nothing comes from elsewhere, and the policy holds', few, async (page, daemon) => {
  const places = await page.value("performance.getEntriesByType('resource').map(entry => new URL(entry.name).origin)")
  assert.ok(places.length >= 6)
  assert.deepEqual([...new Set(places)], [new URL(daemon.url).origin])
  assert.ok(daemon.requests.every(path => /^\/([a-z]+\.(js|css|svg)|api\/[a-z]+)?$/.test(path)), daemon.requests.join())
})

shows('a few objects: figures, rows, details', few, async page => {
  await page.showsNames(['sales/price', 'sales/quantity', 'weather'])
  assert.doesNotMatch(await text(page, '#sum-private') + await text(page, '.device .legend'), /private/)
  // The last column is a time of day; what was used just now may be some seconds old on a busy machine.
  const shown = (await rows(page)).map(row => row.slice(0, -1).map(cell => cell.replace(/^\d+ s ago$/, 'now')))
  assert.deepEqual(shown, [
    ['sales/price', '16.0 MiB', 'sealed', 'NVIDIA H200', 'device', '2', '3', 'in use', '1000', '0600', 'spills'],
    ['sales/quantity', '8.0 MiB', 'sealed', 'NVIDIA H200', 'device', '–', '–', '10 min ago', '1000', '0600', 'spills'],
    ['weather', '24.0 MiB', 'sealed', 'NVIDIA H200', 'device', '–', '–', 'now', '1001', '0644', 'pinned']
  ])
  assert.deepEqual(await Promise.all(['objects', 'bytes', 'leases', 'cached', 'sessions'].map(name => text(page, `#sum-${name}`))),
    ['3', '48.0 MiB', '2', '+ 3 cached', '3'])
  assert.equal(await text(page, '.device .figure'), '64.0 MiB of 8.0 GiB taken')
  assert.match(await page.value("document.querySelector('.device .bar').ariaLabel"), /48.0.MiB in objects, 16.0.MiB retained, 0.B pinned by clients, 7.9.GiB free/)
  await page.click('#table .body .row:nth-child(3)')
  await page.says('#details', /weather[\s\S]*Pinned\s+yes[\s\S]*If short\s+stays, as it is pinned \(evict=keep\)[\s\S]*segment 1 at 24.0 MiB: 24.0 MiB/)
  await page.click('.device summary')
  await page.says('.device .segments', /1\s+64.0 MiB\s+48.0 MiB\s+3\s+used\s+fd\s+1000\s+1000\s+0600/)
})

shows('the map is to scale, and tells what is under the pointer', few, async page => { // 16, 8 and 24 MiB of 64, on 12 lines: 4, 2 … 6 … 16 MiB are free
  await page.until("document.querySelector('.map canvas').height === 212")
  const [price, quantity, weather, nothing] = await Promise.all([[0.5, 1], [0.5, 3], [0.5, 6], [0.5, 10]].map(([x, line]) => pixel(page, x, line)))
  const colours = [price, quantity, weather].map(String)
  assert.equal(new Set([...colours, String(nothing)]).size, 4)
  // 64 MiB on 12 lines is 5⅓ MiB a line: line 2 ends the first object, line 4 has the second's end at its half.
  assert.equal(String(await pixel(page, 0.98, 2)), colours[0])
  assert.equal(String(await pixel(page, 0.45, 4)), colours[1])
  assert.equal(String(await pixel(page, 0.55, 4)), colours[2])
  assert.equal(String(await pixel(page, 0.98, 8)), colours[2])
  const box = await page.value("document.querySelector('.map').getBoundingClientRect().toJSON()")
  await page.move(box.x + box.width / 2, box.y + 3 * 18 + 5)
  await page.says('.device .at', /^sales\/quantity · 8.0 MiB · segment 1 at 16.0 MiB · used 10 min ago/)
  await page.move(box.x + box.width / 2, box.y + 10 * 18 + 5)
  await page.says('.device .at', /^segment 1: no object here/)
  await page.move(box.x + box.width / 2, box.y + 18 + 5)
  await page.says('.device .at', /^sales\/price .* 2 leases/)
  await page.value("document.querySelector('.scale').value = 'device', document.querySelector('.scale').dispatchEvent(new Event('change'))")
  await page.says('.device .at', /^one pixel is/) // of a device of 8 GiB: nothing is there, though the pointer has not moved
})

shows('what is private is counted, and drawn as such', daemon => { // 64 MiB, then 32 of its own
  few(daemon)
  daemon.putPrivate(24 * MIB)
  daemon.putPrivate(7.5 * MIB)
}, async page => {
  await page.says('#sum-private', /^\+ 2 private$/)
  assert.equal(await text(page, '#sum-objects'), '3')
  assert.deepEqual([await text(page, '#sum-bytes'), await text(page, '#sum-private-bytes')], ['48.0 MiB', '+ 31.5 MiB private'])
  await page.says('#hidden', /^2 private objects not shown/)
  assert.match(plain(await page.value("document.querySelector('.device .bar').ariaLabel")), /^48.0 MiB in objects, 31.5 MiB in private objects, 16.5 MiB retained/)
  await page.says('.device .legend', /in private objects\s*31.5 MiB/)
  await page.says('.device .key', /private/)
  await page.says('.device .at', /^3 objects and 31.5 MiB private in 3 segments$/)
  // A line is 8 MiB: 6 of objects and 2 of nothing; then 3 of the one and 1 of the other.
  const hatched = async line => new Set(await Promise.all([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8].map(async part => String(await pixel(page, part, line)))))
  let retained // the picture comes after the words
  await until(async () => (await hatched(7)).has(retained = String(await pixel(page, 0.501, 6))), 'retained is as before')
  for (const line of [8, 9, 10]) assert.ok(!(await hatched(line)).has(retained), `line ${line} is private`)
  const box = await page.value("document.querySelector('.map').getBoundingClientRect().toJSON()")
  await page.move(box.x + box.width / 2, box.y + 9 * 18 + 5)
  await page.says('.device .at', /^segment 2: private objects, by their size alone$/)
  await page.click('.device summary')
  await page.says('.device .segments', /2\s+24.0 MiB\s+24.0 MiB\s+private/)
})

shows('the header covers nothing that is gone to', daemon => daemon.fill(200), async page => {
  for (const [width, height] of [[1280, 600], [390, 600]]) {
    await page.resize(width, height)
    await page.until(`innerWidth === ${width} && parseFloat(getComputedStyle(document.documentElement).scrollPaddingTop) >= document.querySelector('.top').offsetHeight`)
    const below = selector => page.until(`document.querySelector('${selector}').getBoundingClientRect().top >= document.querySelector('.top').getBoundingClientRect().bottom - 1`)
    await page.value('scrollTo(0, 0)')
    await page.value("document.querySelector('.skip').focus()")
    await page.press('Enter')
    await page.until("document.activeElement.id === 'objects' && scrollY > 0")
    await below('#objects h2')
    // From below up to the table, whose own header is to be seen.
    await page.value('scrollTo(0, document.documentElement.scrollHeight)')
    await page.value("document.querySelector('#table').focus()")
    await below('#table .head')
    // The wheel has moved half of the table out of sight: keys bring the row back that they lead to.
    for (const [block, key, index] of [['start', 'Home', 2], ['end', 'End', 201]]) {
      await page.press(key === 'Home' ? 'End' : 'Home')
      await page.value(`scrollBy(0, document.querySelector('#table').getBoundingClientRect().top + ${block === 'start' ? 200 : -450})`)
      await page.press(key)
      await page.until(`(() => {
        const box = document.getElementById(document.querySelector('#table').getAttribute('aria-activedescendant'))
        if (box?.ariaRowIndex !== '${index}') return false
        const { top, bottom } = box.getBoundingClientRect()
        return top >= document.querySelector('.top').getBoundingClientRect().bottom - 1 && bottom <= innerHeight + 1
      })()`)
    }
  }
})

shows('a table that goes on to the right shows it', few, async page => {
  const more = () => page.value("document.querySelector('#sessions').classList.contains('more')")
  await until(more, 'the mark')
  await page.value("document.querySelector('#sessions').scrollLeft = 10000")
  await until(async () => !await more(), 'its end')
  await page.resize(1280, 844)
  await page.until("innerWidth === 1280")
  await until(async () => !await more(), 'room for all of it')
}, { width: 390, height: 844 })

shows('keys go through map and table, and it is said what is there', few, async page => {
  const value = () => page.value("document.querySelector('.map').getAttribute('aria-valuetext')")
  const valued = pattern => until(async () => pattern.test(plain(await value() ?? '')), `the map to say ${pattern}`)
  await page.value("document.querySelector('.map').focus()")
  await page.press('ArrowRight')
  await valued(/^sales\/price, 16.0 MiB, segment 1 at 0 B, 2 leases/)
  await page.press('End')
  await valued(/^weather, .*pinned/)
  await page.press('ArrowLeft')
  await valued(/^sales\/quantity/)
  await page.press('Enter')
  await page.says('#details-title', /^sales\/quantity$/)
  await until(() => page.value("document.querySelector('#table .row[aria-selected=true] .cell')?.textContent === 'sales/quantity'"))
  await page.press('Escape')
  await page.until("document.querySelector('#details').hidden")

  await page.value("document.querySelector('#table').focus()")
  const active = () => page.value("document.getElementById(document.querySelector('#table').getAttribute('aria-activedescendant'))?.firstChild.textContent")
  for (const [key, name] of [['Home', 'sales/price'], ['ArrowDown', 'sales/quantity'], ['ArrowUp', 'sales/price'], ['ArrowUp', 'sales/price'], ['End', 'weather'], ['PageUp', 'sales/price']]) {
    await page.press(key)
    await until(async () => await active() === name, `${key} to lead to ${name}`)
  }
  await page.press('ArrowDown')
  await page.press(' ')
  await page.says('#details-title', /^sales\/quantity$/)
})

shows('everything that can have the focus has it in order, and a name and a role', few, async page => {
  await page.click('#table .body .row')
  await page.until("!document.querySelector('#details').hidden")
  const visited = []
  await page.value("document.querySelector('.skip').focus()")
  await page.press('Tab')
  await page.press('Tab', { shift: true })
  for (let i = 0; i < 40; i++) {
    const [id, visible] = await page.value(`(() => {
      const element = document.activeElement
      const style = getComputedStyle(element)
      return [element === document.body ? 'body' : element.id || element.textContent.trim().slice(0, 20) || element.className || element.tagName, style.outlineStyle !== 'none' && style.outlineWidth !== '0px']
    })()`)
    if (i && (id === 'body' || visited.includes(id))) break
    assert.ok(visible, `the focus is seen on ${id}`)
    visited.push(id)
    await page.press('Tab')
  }
  const order = ['Skip to the objects', 'pause', 'map', 'filter-text', 'filter-device', 'table', 'Name', 'Size', 'details-close', 'span']
  assert.deepEqual(visited.filter(each => order.includes(each)), order)
  await page.send('Accessibility.enable')
  const { nodes } = await page.send('Accessibility.getFullAXTree')
  const told = nodes.filter(node => !node.ignored).map(node => ({
    role: node.role?.value, name: node.name?.value ?? '', focusable: node.properties?.some(({ name, value }) => name === 'focusable' && value.value)
  }))
  const nameless = told.filter(node => node.focusable && !node.name && node.role !== 'RootWebArea')
  assert.deepEqual(nameless, [])
  const find = (role, pattern) => assert.ok(told.some(node => node.role === role && pattern.test(plain(node.name))), `${role} ${pattern}`)
  find('slider', /^Memory map of NVIDIA H200: 1 segment of together 64.0 MiB, with 3 objects/)
  find('grid', /^Objects$/)
  find('image', /48.0 MiB in objects/)
  find('image', /0 spilled, 0 evicted, 0 restored/)
  find('searchbox', /Name has/)
  find('columnheader', /^Last use/)
  find('main', /^$/)
  find('status', /^$/)
  assert.deepEqual(await page.value("[...document.querySelectorAll('h1, h2, h3')].map(heading => `${heading.tagName} ${heading.textContent}`)"),
    ['H1 gpubufd', 'H2 Devices', 'H3 NVIDIA H200', 'H3 Tiers below the devices', 'H2 Objects', 'H3 sales/price', 'H2 Spills and evictions', 'H2 Sessions'])
})

shows('what happens is seen', few, async (page, daemon) => {
  const [price, quantity, weather] = daemon.objects.values()
  daemon.seal('a/new', 4 * MIB)
  await page.showsNames(['a/new', 'sales/price', 'sales/quantity', 'weather'])
  daemon.seal('weather', 2 * MIB)
  await until(async () => (await rows(page))[3][1] === '2.0 MiB', 'the new version')
  daemon.spill(price)
  await until(async () => (await rows(page))[1][4] === 'host', 'the spilled object in its tier')
  await page.says('#timeline-sum', /^1 spilled \(16.0 MiB\), 0 evicted, 0 restored/)
  await page.says('#tiers tbody', /host\s+<1 %\s+16.0 MiB\s+of 32.0 GiB\s+disk\s+0 %\s+0 B\s+of 256 GiB/)
  daemon.restore(price)
  await until(async () => (await rows(page))[1][4] === 'device', 'it back')
  await page.click('#table .body .row:nth-child(3)')
  await page.says('#details', /^sales\/quantity\s*×?\s*State\s+not in use/)
  daemon.remove(quantity, 'evicted')
  await page.says('#details', /State\s+gone: deleted, replaced or evicted/)
  await page.showsNames(['a/new', 'sales/price', 'weather'])
  await page.says('#timeline-sum', /^1 spilled .*, 1 evicted \(8.0 MiB\), 1 restored/)
  assert.deepEqual((await page.value("[...document.querySelectorAll('#recent tbody tr')].map(row => row.cells[1].textContent + ' ' + row.cells[2].textContent)")),
    ['evicted sales/quantity', 'restored sales/price', 'spilled sales/price'])
  await until(() => page.value("[...document.querySelectorAll('#timeline rect.evicted')].some(bar => Number(bar.getAttribute('height')) > 0)"), 'a bar')
  // Of what is private nothing is told but that it happened.
  daemon.send({ seq: ++daemon.seq, kind: 'spilled', private: true, device: daemon.devices[0].id })
  await page.says('#recent', /spilled\s+a private object\s+–/)
  // Figures without events, such as leases and new sessions, are asked for.
  daemon.objects.get(price.version).leases = 7
  await until(async () => (await rows(page))[1][4] === '7', 'the leases')
  daemon.connectSessions(1)
  await page.says('#sum-sessions', /^4$/)
  assert.equal(weather.version in daemon.objects, false)
})

const WRITER = { pid: 4100, session: 7, client: 'camera.py', access: 'rw', exclusive: true, age_ms: 60_000, stream: { frames: 100 } }
const READER = { pid: 4200, session: 8, client: 'train.py', access: 'r', age_ms: 5000, stream: { reader: 0, hold: 2, lag: 4, held: 1, frames: 90, missed: 12, behind: 3 } }
const stream = (frames, writer = 4100) => ({ generation: 3, writers: writer ? 1 : 0, stream: { readers: 1, frames, ...(writer && { writer }) } })

shows('streams and live objects, with who writes and reads them', daemon => {
  daemon.put('cam', MIB, { leases: 2, cached: 1, live: stream(100), waits: { pid: 4500, session: 11, client: 'next.py', age_ms: 2000, exclusive: true }, holders: [WRITER, READER, { pid: 4300, session: 9, client: 'idle.py', access: 'r', age_ms: 9000, cached_ms: 2000 }] })
  daemon.put('pool', MIB, { live: { generation: 0, writers: 0 } })
  daemon.put('table', MIB, { leases: 1, holders: [{ pid: 4400, session: 10, client: '', access: 'r', age_ms: 3000 }] })
}, async (page, daemon) => {
  const [cam] = daemon.objects.values()
  const kinds = async () => (await rows(page)).map(row => row[2])
  const began = Date.now()
  const writing = setInterval(() => { cam.live = stream(100 + Math.round((Date.now() - began) / 20)) }, 10)
  await until(async () => /^stream · [345]\d fps$/.test((await kinds())[0]), 'some fifty frames a second')
  assert.deepEqual((await kinds()).slice(1), ['live', 'sealed'])
  await page.click('#table .body .row')
  await page.says('#details', /Kind\s+stream\s+Frames\s+[\d ]+, [345]\d a second\s+Generation\s+3\s+Leases\s+2 held, 1 cached\s+Written by\s+camera.py, pid 4100, session 7, for 1 min\s+Read by\s+train.py, pid 4200, session 8, for 5 s\s+90 frames read, 12 missed, 3 behind, 1 of 2 held, lag 4\s+Cached by\s+idle.py[^a-z][\s\S]*Claim waits\s+next.py, pid 4500, session 11, for 2 s/)
  clearInterval(writing)
  // Its writer ends: there is no rate any more, and nobody writes it.
  Object.assign(cam, { live: stream(500, 0), holders: [], waits: undefined })
  await until(async () => (await kinds())[0] === 'stream', 'no rate')
  await page.says('#details', /Frames\s+500\s+Generation\s+3\s+Written by\s+nobody\s+Leases\s+2 held, 1 cached\s+Version/)
  await page.click('#table .body .row:nth-child(2)')
  await page.says('#details', /Kind\s+live: written while others read it\s+Generation\s+0: never claimed\s+Written by\s+nobody\s+Leases\s+none[\s\S]*Created/)
  await page.click('#table .body .row:nth-child(3)')
  await page.says('#details', /State\s+in use\s+Leases\s+1 held\s+Held by\s+no name, pid 4400, session 10, for 3 s[\s\S]*Sealed/)
})

shows('neighbours on the map differ in colour, whatever their names', daemon => {
  const same = Array.from({ length: 200 }, (_, i) => `n/${i}`).filter(name => hash(name) % 8 === 2)
  for (const name of same.slice(0, 16)) daemon.put(name, 4 * MIB) // of 64 on 12 lines: three quarters of a line each
}, async page => {
  await page.until("document.querySelector('.map canvas').height === 212")
  await until(async () => {
    const middles = Array.from({ length: 16 }, (_, i) => 0.75 * i + 0.375)
    const colours = await Promise.all(middles.map(at => pixel(page, at % 1, Math.floor(at)).then(String)))
    return colours.every((colour, i) => colour !== colours[i + 1])
  }, 'sixteen objects, each of another colour than the next')
})

shows('the tiles have no hole, at any width', few, async page => {
  for (const width of [1440, 800, 390]) {
    await page.resize(width, 900)
    await page.until(`innerWidth === ${width}`)
    const holes = await page.value(`(() => {
      const boxes = [...document.querySelectorAll('.sums div')].map(tile => tile.getBoundingClientRect())
      const all = document.querySelector('.sums').getBoundingClientRect()
      return all.width * all.height - boxes.reduce((sum, { width, height }) => sum + (width + 1) * (height + 1), 0)
    })()`)
    assert.ok(holes < 5000, `${width} px: ${holes} px without a tile`)
  }
})

test('a page opened before a daemon that is dead tells no facts', withChromium, async () => {
  const daemon = new FakeDaemon()
  daemon.refusing = 503
  await daemon.start()
  const page = await browser.open(daemon.url, { width: 1440 })
  await page.says('#connection', /^Connection lost .*: this daemon refuses/)
  assert.deepEqual(await page.value("[...document.querySelectorAll('.sums dd')].map(each => each.innerText.trim())"), ['–', '–', '–', '–'])
  for (const place of ['#sessions', '#devices', '#table .nothing']) assert.equal(await text(page, place), 'Asking the daemon…', place)
  assert.equal(await text(page, '#shown') + await text(page, '#timeline-sum') + await text(page, '#recent'), '')
  // The sentence has a line of its own, and the buttons stay where they are.
  const [line, pause] = await page.value("['#connection', '#pause'].map(each => document.querySelector(each).getBoundingClientRect().toJSON())")
  assert.ok(line.top >= pause.bottom && pause.right > 1300, JSON.stringify([line, pause]))
  await page.close()
  await daemon.stop()
})

shows('sorted and filtered', few, async (page, daemon) => {
  const sorted = column => page.value(`document.querySelector('#table .head .of-${column}').ariaSort`)
  assert.equal(await sorted('name'), 'ascending')
  await page.click('#table .head .of-bytes button')
  await page.showsNames(['weather', 'sales/price', 'sales/quantity'])
  assert.deepEqual([await sorted('bytes'), await sorted('name')], ['descending', 'none'])
  await page.click('#table .head .of-bytes button')
  await page.showsNames(['sales/quantity', 'sales/price', 'weather'])
  daemon.seal('between', 20 * MIB)
  await page.showsNames(['sales/quantity', 'sales/price', 'between', 'weather'])
  await page.value("document.querySelector('#filter-text').focus()")
  await page.type('ALE i')
  await page.showsNames(['sales/quantity', 'sales/price'])
  assert.equal(await text(page, '#shown'), '2 of 4 objects')
  await page.type('zz')
  await page.says('#table .nothing', /No object passes the filter/)
  await page.says('#spoken', /^0 of 4 objects shown/)
  for (let i = 0; i < 7; i++) await page.send('Input.dispatchKeyEvent', { type: 'keyDown', key: 'Backspace', windowsVirtualKeyCode: 8 })
  await page.showsNames(['sales/quantity', 'sales/price', 'between', 'weather'])
  await page.value("document.querySelector('#filter-hold').value = 'pinned', document.querySelector('#filter').dispatchEvent(new Event('input'))")
  await page.showsNames(['weather'])
})

shows('lost, and found again with what happened meanwhile', few, async (page, daemon) => {
  const kind = wanted => page.until(`document.querySelector('#connection').dataset.kind === '${wanted}'`)
  await daemon.stop()
  await kind('lost')
  await page.says('#connection', /^Connection lost at \d\d:\d\d:\d\d: the gateway does not answer. Trying again/)
  assert.equal(await page.value("document.querySelector('#retry').hidden"), false)
  assert.equal(await page.value("document.querySelector('#icon').getAttribute('href')"), 'lost.svg')
  assert.deepEqual(await page.names(), ['sales/price', 'sales/quantity', 'weather'])
  // A screen reader is told once, not with every try that fails.
  const said = await text(page, '#connection-text')
  await page.value("window.spoken = 0, new MutationObserver(() => window.spoken++).observe(document.querySelector('#connection-text'), { childList: true, characterData: true, subtree: true })")
  let tries = 0
  const deaf = net.createServer(socket => { tries++; socket.destroy() })
  await new Promise(resolve => deaf.listen(daemon.port, '127.0.0.1', resolve))
  await until(() => tries > 2, 'more tries')
  await new Promise(resolve => deaf.close(resolve))
  assert.deepEqual([await text(page, '#connection-text'), await page.value('window.spoken')], [said, 0])
  // The same daemon comes back, and has changed.
  daemon.objects.delete([...daemon.objects.keys()][0])
  daemon.put('while/away', MIB)
  await daemon.start(daemon.port)
  await page.click('#retry')
  await kind('live')
  await page.showsNames(['sales/quantity', 'weather', 'while/away'])
  // Then another one, which knows none of this.
  await daemon.stop()
  await kind('lost')
  Object.assign(daemon, new FakeDaemon())
  daemon.put('other', MIB)
  await daemon.start(daemon.port)
  await kind('live') // by itself
  await page.showsNames(['other'])
  assert.equal(await text(page, '#instance'), `0.1.0 · instance ${daemon.instance.slice(0, 8)}`)
  // The socket alone breaks.
  daemon.drop()
  daemon.put('one/more', MIB)
  await page.showsNames(['one/more', 'other'])
  await kind('live')
}, { goes: true })

shows('it is live once it hears what happens, not once it is answered', daemon => {
  few(daemon)
  daemon.silent = true
}, async (page, daemon) => {
  const asked = () => daemon.requests.filter(each => each === '/api/snapshot').length
  await until(() => asked() > 2, 'the page to ask again')
  await page.showsNames(['sales/price', 'sales/quantity', 'weather'])
  assert.equal(await page.value("document.querySelector('#connection').dataset.kind"), 'connecting')
  daemon.silent = false
  await page.until(LIVE)
})

shows('a daemon that says nothing any more is as good as gone', few, async (page, daemon) => {
  const started = Date.now()
  daemon.silent = true // as when its machine has lost its network: the socket stays
  await page.says('#connection', /nothing has come for 15 s/) // and goes on saying so while it tries again
  assert.ok(Date.now() - started > 10_000, 'it was given its time')
  daemon.silent = false
  await page.until(LIVE)
})

shows('while nobody looks it draws nothing', few, async (page, daemon) => {
  const hide = hidden => page.value(`Object.defineProperty(document, 'hidden', { value: ${hidden}, configurable: true }), document.dispatchEvent(new Event('visibilitychange'))`)
  const frames = () => page.value('document.documentElement.dataset.frames')
  await hide(true)
  // An answer comes after the events before it.
  await page.click('#table .body .row')
  await page.until("!document.querySelector('#details').hidden")
  const asked = daemon.requests.length
  const before = await frames()
  daemon.seal('a/new', MIB)
  // A clock: two of its seconds, in which a page that is looked at would have drawn and asked again.
  await new Promise(resolve => setTimeout(resolve, 2500))
  assert.equal(await frames(), before)
  assert.ok(daemon.requests.length - asked <= 1)
  await hide(false)
  await page.showsNames(['a/new', 'sales/price', 'sales/quantity', 'weather'])
})

shows('a daemon that refuses', few, async (page, daemon) => {
  daemon.refusing = 503
  daemon.drop()
  await page.says('#connection', /^Connection lost .*: this daemon refuses\. Trying/)
  daemon.refusing = 401
  await page.click('#retry')
  await page.says('#connection', /^The daemon wants its token/)
  assert.match(await text(page, '#sign-in'), /Sign in/)
  daemon.refusing = 0
  await page.click('#retry')
  await page.until(LIVE)
  assert.equal(await page.value("document.querySelector('#sign-in').hidden"), true)
}, { goes: true })

shows('events that were lost are noticed, and made up for', few, async (page, daemon) => {
  daemon.tell('spilled', [...daemon.objects.values()][0])
  await page.says('#timeline-sum', /^1 spilled/)
  daemon.silent = true
  daemon.seal('unheard', MIB)
  daemon.remove([...daemon.objects.values()][1])
  daemon.silent = false
  daemon.seal('z/heard', MIB)
  await page.showsNames(['sales/price', 'unheard', 'weather', 'z/heard'])
  await page.says('#timeline-sum', /\. 2 events missed\.$/)
})

shows('paused, it stands still', few, async (page, daemon) => {
  await page.click('#pause')
  await page.says('#connection', /^Paused$/)
  assert.equal(await page.value("document.querySelector('#pause').ariaPressed"), 'true')
  const before = await page.names()
  daemon.seal('a/new', MIB)
  // An answer that comes after the event: what is asked for is still shown.
  await page.click('#table .body .row')
  await page.until("!document.querySelector('#details').hidden")
  await page.click('#pause')
  await page.showsNames(['a/new', ...before])
})

shows('light and dark, and no movement for those who want none', few, async page => {
  const look = () => page.value(`(() => {
    const colour = (selector, property) => getComputedStyle(document.querySelector(selector))[property]
    return { page: colour('html', 'backgroundColor'), card: colour('.device', 'backgroundColor'), ink: colour('body', 'color'), quiet: colour('.device .name', 'color'), moves: colour('.bar i', 'transitionDuration') }
  })()`)
  const light = await look()
  const paper = await pixel(page, 0.5, 1)
  await page.prefer({ dark: true, motion: false })
  const dark = await until(async () => {
    const now = await look()
    return now.page !== light.page && now
  }, 'dark colours')
  await until(async () => String(await pixel(page, 0.5, 1)) !== String(paper), 'a dark map')
  assert.deepEqual([light.moves, dark.moves], ['0.3s', '0s'])
  for (const theme of [light, dark]) {
    for (const paper of [theme.page, theme.card]) {
      assert.ok(contrast(theme.ink, paper) > 7, `${theme.ink} on ${paper}`)
      assert.ok(contrast(theme.quiet, paper) > 4.5, `${theme.quiet} on ${paper}`)
    }
  }
})

shows('forced colours leave the chosen row marked', few, async page => {
  await page.prefer({ forced: true })
  await page.until("matchMedia('(forced-colors: active)').matches")
  await page.click('#table .body .row')
  const chosen = `#table .row[aria-selected="true"]`
  await page.until(`!!document.querySelector('${chosen}')`)
  await page.value("document.querySelector('#filter-text').focus()") // not by the focus
  const marked = "[...document.querySelectorAll('#table .row')].filter(row => getComputedStyle(row).outlineStyle !== 'none').length"
  assert.deepEqual(await page.value(`[getComputedStyle(document.querySelector('${chosen}')).outlineStyle, ${marked}]`), ['solid', 1])
})

/** As WCAG 2 has it. */
function contrast (a, b) {
  const [x, y] = [a, b].map(colour => {
    const [r, g, b] = colour.match(/[\d.]+/g).map(Number).map(part => part / 255)
      .map(part => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
    return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05
  })
  return Math.max(x, y) / Math.min(x, y)
}

shows('a narrow window has everything, one below the other', few, async page => {
  for (const width of [340, 500, 720, 1000]) {
    await page.resize(width, 700)
    await page.until(`innerWidth === ${width}`)
    // Elements that fit themselves to their room do so in the next frame.
    await page.until(`innerWidth === ${width} && document.documentElement.scrollWidth <= innerWidth`)
    const [first] = await rows(page)
    assert.deepEqual(first.slice(0, 2), ['sales/price', '16.0 MiB'])
    await until(() => page.value("document.querySelector('.map canvas').width === Math.floor(document.querySelector('.map').clientWidth)"), `a map as wide as ${width} has room for`)
  }
}, { width: 340, height: 700 })

shows('a line shows the last ten minutes, and breaks where nothing is known', daemon => {
  few(daemon)
  const [{ id, capacity }] = daemon.devices
  daemon.past = { [id]: Array.from({ length: 120 }, (_, i) => i < 60 || i === 90 ? null : capacity / 2) }
}, async (page, daemon) => {
  assert.deepEqual(await page.value("[...document.querySelectorAll('.line :is(.scale-of, .axis) span')].map(each => each.innerText)").then(all => all.map(plain)), ['8.0 GiB', '0 B', '10 min ago', '5 min ago', 'now'])
  const path = "document.querySelector('.past path').getAttribute('d')"
  await page.until(`${path}.split('M').length === 3`)
  const [, first, second] = (await page.value(path)).split('M')
  assert.match(first, /^\d+,16.0(L\d+,16.0)+$/) // half full, from the middle on
  assert.ok(second.split('L').length > 20)
  assert.match(await page.value("document.querySelector('.past').getAttribute('aria-label')"), /^In objects in the last ten minutes: from 4.0.GiB to 48.0.MiB, at most 4.0.GiB$/)
  daemon.put('more', 4096 * MIB)
  await page.until(`/,1\\d\\.\\d$/.test(${path})`) // the line goes on with the figures
})

shows('several devices', daemon => daemon.fill(40), async page => {
  await page.until("document.querySelectorAll('.device').length === 3")
  await page.value("document.querySelector('#filter-device').selectedIndex = 2, document.querySelector('#filter').dispatchEvent(new Event('input'))")
  await page.says('#shown', /^13 of 40 objects/)
  assert.deepEqual(new Set((await rows(page)).map(row => row[3])), new Set(['NVIDIA H200 …0001']))
}, { devices: 3 })
