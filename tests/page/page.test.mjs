// The page in a real browser, before a daemon that is none (fake.mjs) and does what each test wants.

import assert from 'node:assert/strict'
import net from 'node:net'
import { after, before, test } from 'node:test'
import { Browser, chromium, until, withChromium } from './browser.mjs'
import { FakeDaemon } from './fake.mjs'

const MIB = 1 << 20
const LIVE = "document.querySelector('#connection')?.dataset.kind === 'live'"
const ENDED = []
let browser

before(async () => { if (chromium) browser = await Browser.start() })
after(async () => {
  for (const daemon of ENDED) await daemon.stop().catch(() => {})
  await browser?.stop()
})

/** A daemon as `prepare` makes it, and a page before it that is live. */
async function open (prepare = () => {}, options = {}) {
  const { devices, ...rest } = options
  const daemon = new FakeDaemon({ devices })
  prepare(daemon)
  await daemon.start()
  ENDED.push(daemon)
  const page = await browser.open(daemon.url, rest)
  await page.until(`${LIVE} && document.documentElement.dataset.frames > 2`)
  return { daemon, page }
}

/** A few objects, by name; sizes in MiB. In one segment of 64 MiB. */
function few (daemon) {
  daemon.put('sales/price', 16 * MIB, { leases: 2, used: Date.now() })
  daemon.put('sales/quantity', 8 * MIB, { used: Date.now() - 600_000 })
  daemon.put('weather', 24 * MIB, { pinned: true, uid: 1001, mode: '0644', evict: 'keep' })
  daemon.connectSessions(3)
}

const plain = text => text.replace(/[\u00a0\u202f]/g, ' ')
const text = async (page, selector) => plain(await page.text(selector) ?? '')
/** Waits until an element says something that matches. */
async function says (page, selector, pattern) {
  let seen
  await until(async () => pattern.test(seen = await text(page, selector)), `${selector} to say ${pattern}`)
    .catch(error => { throw new Error(`${error.message}; it says: ${seen}`) })
}
const rows = async page => (await page.value(`[...document.querySelectorAll('#table .body .row:not([hidden])')]
  .sort((a, b) => a.ariaRowIndex - b.ariaRowIndex)
  .map(row => [...row.children].filter(cell => cell.offsetParent).map(cell => cell.textContent))`)).map(row => row.map(plain))
const names = async page => (await rows(page)).map(row => row[0])
async function showsNames (page, expected) {
  let seen
  await until(async () => JSON.stringify(seen = await names(page)) === JSON.stringify(expected), '')
    .catch(() => assert.deepEqual(seen, expected))
}

/** The colour of the map's pixel at a part of its width, in a line. */
const pixel = (page, part, line) => page.value(`(() => {
  const map = document.querySelector('.map canvas')
  const copy = new OffscreenCanvas(map.width, map.height).getContext('2d')
  copy.drawImage(map, 0, 0)
  return [...copy.getImageData(Math.floor(${part} * map.width), ${line} * 18 + 7, 1, 1).data]
})()`)

function fine (page) {
  assert.deepEqual(page.complaints, [])
}

test('nothing yet', withChromium, async () => {
  const { page } = await open()
  assert.equal(await text(page, '#sum-objects'), '0')
  await says(page, '#table .nothing', /holds no objects yet. This brings one: gpubufctl put NAME FILE$/)
  await says(page, '#no-tiers', /gpubufd --tier disk:/)
  await says(page, '.device .at', /Nothing is allocated/)
  await says(page, '#sessions', /Nobody is connected/)
  await says(page, '#recent', /No object has been spilled/)
  assert.equal(await page.value("document.querySelector('#table').ariaRowCount"), '1')
  fine(page)
  await page.close()
})

test('nothing comes from elsewhere, and the policy holds', withChromium, async () => {
  const { page, daemon } = await open(few)
  const places = await page.value("performance.getEntriesByType('resource').map(entry => new URL(entry.name).origin)")
  assert.ok(places.length >= 6)
  assert.deepEqual([...new Set(places)], [new URL(daemon.url).origin])
  assert.ok(daemon.requests.every(path => /^\/([a-z]+\.(js|css|svg)|api\/[a-z]+)?$/.test(path)), daemon.requests.join())
  fine(page)
  await page.close()
})

test('a few objects: figures, rows, details', withChromium, async () => {
  const { page } = await open(few)
  await showsNames(page, ['sales/price', 'sales/quantity', 'weather'])
  // The last column is a time of day; what was used just now may be some seconds old on a busy machine.
  const shown = (await rows(page)).map(row => row.slice(0, -1).map(cell => cell.replace(/^\d+ s ago$/, 'now')))
  assert.deepEqual(shown, [
    ['sales/price', '16.0 MiB', 'NVIDIA H200', 'device', '2', '', 'in use', '1000', '0600', 'spills'],
    ['sales/quantity', '8.0 MiB', 'NVIDIA H200', 'device', '–', '', '10 min ago', '1000', '0600', 'spills'],
    ['weather', '24.0 MiB', 'NVIDIA H200', 'device', '–', 'pinned', 'now', '1001', '0644', 'pinned']
  ])
  assert.deepEqual(await Promise.all(['objects', 'bytes', 'leases', 'pinned', 'sessions'].map(name => text(page, `#sum-${name}`))),
    ['3', '48.0 MiB', '2', '1', '3'])
  assert.equal(await text(page, '.device .figure'), '64.0 MiB of 8.0 GiB taken')
  assert.match(await page.value("document.querySelector('.device .bar').ariaLabel"), /48.0.MiB in objects, 16.0.MiB retained, 0.B pinned by clients, 7.9.GiB free/)
  await page.click('#table .body .row:nth-child(3)')
  await says(page, '#details', /weather[\s\S]*Pinned\s+yes[\s\S]*If short\s+stays, as it is pinned \(evict=keep\)[\s\S]*segment 1 at 24.0 MiB: 24.0 MiB/)
  await page.click('.device summary')
  await says(page, '.device .segments', /1\s+64.0 MiB\s+48.0 MiB\s+3\s+used\s+fd\s+1000\s+1000\s+0600/)
  fine(page)
  await page.close()
})

test('the map is to scale, and tells what is under the pointer', withChromium, async () => {
  const { page } = await open(few) // 16, 8 and 24 MiB of 64, on 12 lines: 4, 2 … 6 … 16 MiB are free
  await page.until("document.querySelector('.map canvas').height === 212")
  const [price, quantity, weather, nothing] = await Promise.all([[0.5, 1], [0.5, 3], [0.5, 6], [0.5, 10]].map(([x, line]) => pixel(page, x, line)))
  const colours = [price, quantity, weather].map(String)
  assert.equal(new Set([...colours, String(nothing)]).size, 4)
  // 64 MiB on 12 lines is 5⅓ MiB a line: line 2 ends the first object, line 4 has the second's end at its half.
  assert.equal(String(await pixel(page, 0.98, 2)), colours[0])
  assert.equal(String(await pixel(page, 0.45, 4)), colours[1])
  assert.equal(String(await pixel(page, 0.55, 4)), colours[2])
  assert.equal(String(await pixel(page, 0.98, 8)), colours[2])
  const box = await page.value("(({ x, y, width }) => ({ x, y, width }))(document.querySelector('.map').getBoundingClientRect())")
  await page.move(box.x + box.width / 2, box.y + 3 * 18 + 5)
  await says(page, '.device .at', /^sales\/quantity · 8.0 MiB · segment 1 at 16.0 MiB · used 10 min ago/)
  await page.move(box.x + box.width / 2, box.y + 10 * 18 + 5)
  await says(page, '.device .at', /^segment 1: no object here/)
  await page.move(box.x + box.width / 2, box.y + 18 + 5)
  await says(page, '.device .at', /^sales\/price .* 2 leases/)
  await page.value("document.querySelector('.scale').value = 'device', document.querySelector('.scale').dispatchEvent(new Event('change'))")
  await page.move(box.x + box.width / 2, box.y + 18 + 6)
  await says(page, '.device .at', /^one pixel is/)
  fine(page)
  await page.close()
})

test('what is private is counted, and drawn as such', withChromium, async () => {
  const { page } = await open(daemon => { // 64 MiB, then 32 of its own
    few(daemon)
    daemon.putPrivate(24 * MIB)
    daemon.putPrivate(7.5 * MIB)
  })
  await says(page, '#sum-private', /^\+ 2 private$/)
  assert.equal(await text(page, '#sum-objects'), '3')
  assert.deepEqual([await text(page, '#sum-bytes'), await text(page, '#sum-private-bytes')], ['48.0 MiB', '+ 31.5 MiB private'])
  await says(page, '#hidden', /^2 private objects not shown/)
  assert.match(plain(await page.value("document.querySelector('.device .bar').ariaLabel")), /^48.0 MiB in objects, 31.5 MiB in private objects, 16.5 MiB retained/)
  await says(page, '.device .legend', /in private objects\s*31.5 MiB/)
  await says(page, '.device .key', /private/)
  await says(page, '.device .at', /^3 objects and 31.5 MiB private in 3 segments$/)
  // A line is 8 MiB: 6 of objects and 2 of nothing; then 3 of the one and 1 of the other.
  const hatched = async line => new Set(await Promise.all([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8].map(async part => String(await pixel(page, part, line)))))
  let retained // the picture comes after the words
  await until(async () => (await hatched(7)).has(retained = String(await pixel(page, 0.501, 6))), 'retained is as before')
  for (const line of [8, 9, 10]) assert.ok(!(await hatched(line)).has(retained), `line ${line} is private`)
  const box = await page.value("(({ x, y, width }) => ({ x, y, width }))(document.querySelector('.map').getBoundingClientRect())")
  await page.move(box.x + box.width / 2, box.y + 9 * 18 + 5)
  await says(page, '.device .at', /^segment 2: private objects, by their size alone$/)
  await page.click('.device summary')
  await says(page, '.device .segments', /2\s+24.0 MiB\s+24.0 MiB\s+private/)
  fine(page)
  await page.close()
  const { page: other } = await open(few)
  assert.deepEqual([await text(other, '#sum-private'), await text(other, '.device .legend')].map(said => /private/.test(said)), [false, false])
  await other.close()
})

test('the header covers nothing that is gone to', withChromium, async () => {
  const { page } = await open(daemon => daemon.fill(200))
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
  fine(page)
  await page.close()
})

test('a table that goes on to the right shows it', withChromium, async () => {
  const { page } = await open(few, { width: 390, height: 844 })
  const more = () => page.value("document.querySelector('#sessions').classList.contains('more')")
  await until(more, 'the mark')
  await page.value("document.querySelector('#sessions').scrollLeft = 10000")
  await until(async () => !await more(), 'its end')
  await page.resize(1280, 844)
  await page.until("innerWidth === 1280")
  await until(async () => !await more(), 'room for all of it')
  fine(page)
  await page.close()
})

test('keys go through map and table, and it is said what is there', withChromium, async () => {
  const { page } = await open(few)
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
  await says(page, '#details-title', /^sales\/quantity$/)
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
  await says(page, '#details-title', /^sales\/quantity$/)
  fine(page)
  await page.close()
})

test('everything that can have the focus has it in order, and a name and a role', withChromium, async () => {
  const { page } = await open(few)
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
  fine(page)
  await page.close()
})

test('what happens is seen', withChromium, async () => {
  const { daemon, page } = await open(few)
  const [price, quantity, weather] = daemon.objects.values()
  daemon.seal('a/new', 4 * MIB)
  await showsNames(page, ['a/new', 'sales/price', 'sales/quantity', 'weather'])
  daemon.seal('weather', 2 * MIB)
  await until(async () => (await rows(page))[3][1] === '2.0 MiB', 'the new version')
  daemon.spill(price)
  await until(async () => (await rows(page))[1][3] === 'host', 'the spilled object in its tier')
  await says(page, '#timeline-sum', /^1 spilled \(16.0 MiB\), 0 evicted, 0 restored/)
  await says(page, '#tiers tbody', /host\s+<1 %\s+16.0 MiB\s+of 32.0 GiB\s+disk\s+0 %\s+0 B\s+of 256 GiB/)
  daemon.restore(price)
  await until(async () => (await rows(page))[1][3] === 'device', 'it back')
  await page.click('#table .body .row:nth-child(3)')
  await says(page, '#details', /^sales\/quantity\s*×?\s*State\s+not in use/)
  daemon.remove(quantity, 'evicted')
  await says(page, '#details', /State\s+gone: deleted, replaced or evicted/)
  await showsNames(page, ['a/new', 'sales/price', 'weather'])
  await says(page, '#timeline-sum', /^1 spilled .*, 1 evicted \(8.0 MiB\), 1 restored/)
  assert.deepEqual((await page.value("[...document.querySelectorAll('#recent tbody tr')].map(row => row.cells[1].textContent + ' ' + row.cells[2].textContent)")),
    ['evicted sales/quantity', 'restored sales/price', 'spilled sales/price'])
  await until(() => page.value("[...document.querySelectorAll('#timeline rect.evicted')].some(bar => Number(bar.getAttribute('height')) > 0)"), 'a bar')
  // Of what is private nothing is told but that it happened.
  daemon.send({ seq: ++daemon.seq, kind: 'spilled', private: true, device: daemon.devices[0].id })
  await says(page, '#recent', /spilled\s+a private object\s+–/)
  // Figures without events, such as leases and new sessions, are asked for.
  daemon.objects.get(price.version).leases = 7
  await until(async () => (await rows(page))[1][4] === '7', 'the leases')
  daemon.connectSessions(1)
  await says(page, '#sum-sessions', /^4$/)
  assert.equal(weather.version in daemon.objects, false)
  assert.equal(await text(page, '#sum-events'), '6')
  fine(page)
  await page.close()
})

test('sorted and filtered', withChromium, async () => {
  const { daemon, page } = await open(few)
  const sorted = column => page.value(`document.querySelector('#table .head .of-${column}').ariaSort`)
  assert.equal(await sorted('name'), 'ascending')
  await page.click('#table .head .of-bytes button')
  await showsNames(page, ['weather', 'sales/price', 'sales/quantity'])
  assert.deepEqual([await sorted('bytes'), await sorted('name')], ['descending', 'none'])
  await page.click('#table .head .of-bytes button')
  await showsNames(page, ['sales/quantity', 'sales/price', 'weather'])
  daemon.seal('between', 20 * MIB)
  await showsNames(page, ['sales/quantity', 'sales/price', 'between', 'weather'])
  await page.value("document.querySelector('#filter-text').focus()")
  await page.type('ALE i')
  await showsNames(page, ['sales/quantity', 'sales/price'])
  assert.equal(await text(page, '#shown'), '2 of 4 objects')
  await page.type('zz')
  await says(page, '#table .nothing', /No object passes the filter/)
  await says(page, '#spoken', /^0 of 4 objects shown/)
  for (let i = 0; i < 7; i++) await page.send('Input.dispatchKeyEvent', { type: 'keyDown', key: 'Backspace', windowsVirtualKeyCode: 8 })
  await showsNames(page, ['sales/quantity', 'sales/price', 'between', 'weather'])
  await page.value("document.querySelector('#filter-hold').value = 'pinned', document.querySelector('#filter').dispatchEvent(new Event('input'))")
  await showsNames(page, ['weather'])
  fine(page)
  await page.close()
})

test('lost, and found again with what happened meanwhile', withChromium, async () => {
  const { daemon, page } = await open(few)
  const kind = wanted => page.until(`document.querySelector('#connection').dataset.kind === '${wanted}'`)
  await daemon.stop()
  await kind('lost')
  await says(page, '#connection', /^Connection lost at \d\d:\d\d:\d\d: the gateway does not answer. Trying again/)
  assert.equal(await page.value("document.querySelector('#retry').hidden"), false)
  assert.equal(await page.value("document.querySelector('#icon').getAttribute('href')"), 'lost.svg')
  assert.deepEqual(await names(page), ['sales/price', 'sales/quantity', 'weather'])
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
  await showsNames(page, ['sales/quantity', 'weather', 'while/away'])
  // Then another one, which knows none of this.
  await daemon.stop()
  await kind('lost')
  const other = new FakeDaemon()
  other.put('other', MIB)
  await other.start(daemon.port)
  ENDED.push(other)
  await kind('live') // by itself
  await showsNames(page, ['other'])
  assert.equal(await text(page, '#instance'), `0.1.0 · instance ${other.instance.slice(0, 8)}`)
  // The socket alone breaks.
  other.drop()
  other.put('one/more', MIB)
  await showsNames(page, ['one/more', 'other'])
  await kind('live')
  await page.close()
})

test('it is live once it hears what happens, not once it is answered', withChromium, async () => {
  const daemon = new FakeDaemon()
  few(daemon)
  daemon.silent = true
  await daemon.start()
  ENDED.push(daemon)
  const page = await browser.open(daemon.url)
  const asked = () => daemon.requests.filter(each => each === '/api/snapshot').length
  await until(() => asked() > 2, 'the page to ask again')
  await showsNames(page, ['sales/price', 'sales/quantity', 'weather'])
  assert.equal(await page.value("document.querySelector('#connection').dataset.kind"), 'connecting')
  daemon.silent = false
  await page.until(LIVE)
  fine(page)
  await page.close()
})

test('a daemon that says nothing any more is as good as gone', withChromium, async () => {
  const { daemon, page } = await open(few)
  const started = Date.now()
  daemon.silent = true // as when its machine has lost its network: the socket stays
  await says(page, '#connection', /nothing has come for 15 s/) // and goes on saying so while it tries again
  assert.ok(Date.now() - started > 10_000, 'it was given its time')
  daemon.silent = false
  await page.until(LIVE)
  fine(page)
  await page.close()
})

test('while nobody looks it draws nothing', withChromium, async () => {
  const { daemon, page } = await open(few)
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
  await showsNames(page, ['a/new', 'sales/price', 'sales/quantity', 'weather'])
  fine(page)
  await page.close()
})

test('a daemon that refuses', withChromium, async () => {
  const { daemon, page } = await open(few)
  daemon.refusing = 503
  daemon.drop()
  await says(page, '#connection', /^Connection lost .*: this daemon refuses\. Trying/)
  daemon.refusing = 401
  await page.click('#retry')
  await says(page, '#connection', /^The daemon wants its token/)
  assert.match(await text(page, '#sign-in'), /Sign in/)
  daemon.refusing = 0
  await page.click('#retry')
  await page.until(LIVE)
  assert.equal(await page.value("document.querySelector('#sign-in').hidden"), true)
  await page.close()
})

test('events that were lost are noticed, and made up for', withChromium, async () => {
  const { daemon, page } = await open(few)
  daemon.tell('spilled', [...daemon.objects.values()][0])
  await says(page, '#sum-events', /^1$/)
  daemon.silent = true
  daemon.seal('unheard', MIB)
  daemon.remove([...daemon.objects.values()][1])
  daemon.silent = false
  daemon.seal('z/heard', MIB)
  await showsNames(page, ['sales/price', 'unheard', 'weather', 'z/heard'])
  await says(page, '#sum-events', /^2, 2 missed$/)
  fine(page)
  await page.close()
})

test('paused, it stands still', withChromium, async () => {
  const { daemon, page } = await open(few)
  await page.click('#pause')
  await says(page, '#connection', /^Paused$/)
  assert.equal(await page.value("document.querySelector('#pause').ariaPressed"), 'true')
  const before = await names(page)
  daemon.seal('a/new', MIB)
  // An answer that comes after the event: what is asked for is still shown.
  await page.click('#table .body .row')
  await page.until("!document.querySelector('#details').hidden")
  await page.click('#pause')
  await showsNames(page, ['a/new', ...before])
  fine(page)
  await page.close()
})

test('light and dark, and no movement for those who want none', withChromium, async () => {
  const { page } = await open(few)
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
  fine(page)
  await page.close()
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

test('a narrow window has everything, one below the other', withChromium, async () => {
  const { page } = await open(few, { width: 340, height: 700 })
  for (const width of [340, 500, 720, 1000]) {
    await page.resize(width, 700)
    await page.until(`innerWidth === ${width}`)
    // Elements that fit themselves to their room do so in the next frame.
    await page.until(`innerWidth === ${width} && document.documentElement.scrollWidth <= innerWidth`)
    const [first] = await rows(page)
    assert.deepEqual(first.slice(0, 2), ['sales/price', '16.0 MiB'])
    await until(() => page.value("document.querySelector('.map canvas').width === Math.floor(document.querySelector('.map').clientWidth)"), `a map as wide as ${width} has room for`)
  }
  fine(page)
  await page.close()
})

test('a line shows the last ten minutes, and breaks where nothing is known', withChromium, async () => {
  const { daemon, page } = await open(daemon => {
    few(daemon)
    const [{ id, capacity }] = daemon.devices
    daemon.past = { [id]: Array.from({ length: 120 }, (_, i) => i < 60 || i === 90 ? null : capacity / 2) }
  })
  const path = () => page.value("document.querySelector('.past path').getAttribute('d')")
  await page.until("document.querySelector('.past path').getAttribute('d').split('M').length === 3")
  const [, first, second] = (await path()).split('M')
  assert.match(first, /^\d+,16.0(L\d+,16.0)+$/) // half full, from the middle on
  assert.ok(second.split('L').length > 20)
  assert.match(await page.value("document.querySelector('.past').getAttribute('aria-label')"), /^In objects in the last ten minutes: from 4.0.GiB to 48.0.MiB, at most 4.0.GiB$/)
  daemon.put('more', 4096 * MIB)
  await page.until("/,1\\d\\.\\d$/.test(document.querySelector('.past path').getAttribute('d'))") // the line goes on with the figures
  fine(page)
  await page.close()
})

test('several devices', withChromium, async () => {
  const { page } = await open(daemon => daemon.fill(40), { devices: 3 })
  await page.until("document.querySelectorAll('.device').length === 3")
  await page.value("document.querySelector('#filter-device').selectedIndex = 2, document.querySelector('#filter').dispatchEvent(new Event('input'))")
  await says(page, '#shown', /^13 of 40 objects/)
  assert.deepEqual(new Set((await rows(page)).map(row => row[2])), new Set(['NVIDIA H200 …0001']))
  fine(page)
  await page.close()
})
