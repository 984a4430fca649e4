// The daemon's side of the page: what it holds, by HTTP; what happens, by server-sent events; and both
// again when they were lost. Runs in the worker.
//
// Events come first: rows are asked for only once the stream is open, so that whatever changes while
// they are on their way is heard too. `seq` tells which of two stories is the newer. Uses have no
// events, so the rows are walked again, gently, for as long as somebody looks.

const FIRST = 10000 // rows a request when the page opens
const AGAIN = 2000 // and when it merely refreshes
const PAUSE = 100 // between two of the latter
const SILENCE = 15000 // without a word for so long: the connection is dead
const LONGEST = 15000 // between two tries
const GATHER = 50 // ms of events in one message

const sleep = ms => new Promise(resolve => setTimeout(resolve, ms))

export class Feed {
  /** `to`: snapshot, stats, event, holders, page, begin, end, drop, state; called with what has come. */
  constructor (base, to) {
    this.base = base
    this.to = to
    this.tries = 0
    this.active = true // somebody looks
    this.stream = null
    this.run = 0 // a number for each connection: what an older one still brings is dropped
    this.last = null // seq of the last event
    this.instance = null // of the daemon that it is of
    this.answering = null // the instance that the last snapshot is of
    this.chosen = null // the name of the object whose holders are asked for
    this.wanted = false // rows are asked for again at once
    this.wake = () => {}
  }

  start () {
    this.#connect()
  }

  setActive (active) {
    if (this.active === active) return
    this.active = active
    if (active) {
      this.wake()
      if (!this.stream) this.retry()
    }
  }

  /** Tries now instead of later. */
  retry () {
    if (this.stream) return
    clearTimeout(this.timer)
    this.#connect()
  }

  /** Something is known to have changed that no event tells. */
  refresh () {
    if (this.wanted) return
    this.wanted = true
    this.wake()
  }

  /** Asks who holds the object of that name, now and every second; null: of none. */
  choose (name) {
    this.chosen = name
    const run = this.run
    this.#holders(() => run === this.run).catch(() => {}) // that it does not answer is noticed anyway
  }

  // ---- the connection ----

  #connect () {
    const run = ++this.run
    const mine = () => run === this.run
    const address = new URL('api/events', this.base)
    address.searchParams.set('gather', GATHER)
    // Missed events are told now, if the gateway still has them.
    if (this.last !== null) address.searchParams.set('after', this.last)
    this.to.state({ kind: this.tries ? 'again' : 'connecting', tries: this.tries })
    const stream = this.stream = new EventSource(address)
    this.#listen(mine)
    stream.onopen = () => {
      if (!mine()) return
      this.#listen(mine)
      this.#follow(mine).catch(error => mine() && this.#lost(error.message, error.status))
    }
    stream.onmessage = message => {
      if (!mine()) return
      this.#listen(mine)
      this.#take(message.data)
    }
    // It would try again by itself, as often as it likes; we do so, more and more slowly.
    stream.onerror = () => {
      stream.close()
      if (mine()) this.#diagnose(mine)
    }
  }

  /** Every word puts off the moment at which silence means loss. */
  #listen (mine) {
    this.heard = Date.now()
    if (this.ear) return
    const check = () => {
      const left = this.heard + SILENCE - Date.now()
      this.ear = left > 0 && this.stream ? setTimeout(check, left) : null
      if (left <= 0 && this.stream) this.#lost('nothing has come for 15 s')
    }
    this.ear = setTimeout(check, SILENCE)
  }

  #take (text) {
    for (const message of [JSON.parse(text)].flat()) {
      const figures = message.kind === 'stats'
      if (figures) this.#known(message.instance)
      this.#follows(message, figures)
      if (figures) this.to.stats(message)
      else this.to.event(message)
    }
  }

  /** Another daemon counts anew. */
  #known (instance) {
    if (instance === this.instance) return
    this.last = null
    this.instance = instance
    this.wake()
  }

  /** A gap in the numbers: events were left out, so what is known may be wrong. One message may stand for
   *  several events that nothing may be told of. */
  #follows ({ seq, count = 1 }, tick) {
    const expected = this.last === null ? seq : this.last + (tick ? 0 : count)
    if (seq > expected) {
      this.to.gap(seq - expected)
      this.refresh()
    }
    this.last = this.last === null ? seq : Math.max(seq, this.last)
  }

  /** A refused stream does not say why; a request does. */
  async #diagnose (mine) {
    try {
      await this.#get('api/snapshot')
      if (mine()) this.#lost('the connection was closed')
    } catch (error) {
      if (mine()) this.#lost(error.message, error.status)
    }
  }

  #lost (why, status) {
    this.#end()
    const wait = Math.min(LONGEST, 500 * 2 ** this.tries) * (0.8 + 0.4 * Math.random())
    this.tries = Math.min(this.tries + 1, 10)
    this.to.drop()
    this.to.state({ kind: status === 401 ? 'denied' : 'lost', why, next: Date.now() + wait })
    clearTimeout(this.timer)
    this.timer = setTimeout(() => this.#connect(), wait)
  }

  #end () {
    this.run++
    clearTimeout(this.ear)
    this.ear = null
    const stream = this.stream
    this.stream = null
    this.wake()
    if (stream) {
      stream.onopen = stream.onmessage = stream.onerror = null
      stream.close()
    }
  }

  // ---- what there is ----

  async #follow (mine) {
    await Promise.all([this.#snapshot(mine), this.#sweep(mine, FIRST, 0), this.#past(mine)])
    // The gateway may answer before it hears of events: the figures that come with them show that it does.
    while (mine() && this.instance !== this.answering) {
      await Promise.race([sleep(1000), this.#woken()])
      if (mine()) await this.#snapshot(mine)
    }
    if (!mine()) return
    this.tries = 0
    this.to.state({ kind: 'live' })
    this.#watchSnapshots(mine).catch(error => mine() && this.#lost(error.message, error.status))
    for (let took = 0; mine();) {
      await this.#rest(mine, Math.max(2000, took))
      if (!mine()) return
      const started = Date.now()
      const urgent = this.wanted
      this.wanted = false
      await this.#sweep(mine, urgent ? FIRST : AGAIN, urgent ? 0 : PAUSE)
      took = Date.now() - started
    }
  }

  /** Waits until the rows are due again, and longer while nobody looks. An urgent one waits a little,
   *  so that a flood of losses is not answered by a flood of requests. */
  async #rest (mine, ms) {
    const due = Date.now() + ms
    const soon = Date.now() + Math.max(300, ms / 4)
    while (mine()) {
      const left = (this.wanted ? soon : due) - Date.now()
      if (left <= 0 && (this.active || this.wanted)) return
      await Promise.race([sleep(this.active ? Math.max(left, 20) : 1000), this.#woken()])
    }
  }

  #woken () {
    return new Promise(resolve => { this.wake = resolve })
  }

  async #watchSnapshots (mine) {
    while (mine()) {
      await sleep(1000)
      if (!mine() || !this.active) continue
      await this.#snapshot(mine)
      await this.#holders(mine)
    }
  }

  async #snapshot (mine) {
    const snapshot = await this.#get('api/snapshot')
    if (!mine()) return
    this.answering = snapshot.instance
    this.to.snapshot(snapshot)
  }

  async #holders (mine) {
    const name = this.chosen
    if (name === null) return
    const told = await this.#get(`api/holders?${new URLSearchParams({ name })}`)
    if (mine() && name === this.chosen) this.to.holders(told)
  }

  async #past (mine) {
    const past = await this.#get('api/history')
    if (mine()) this.to.past(past)
  }

  async #sweep (mine, limit, pause) {
    let cursor = null
    this.to.begin()
    do {
      const query = new URLSearchParams({ limit })
      if (cursor !== null) query.set('after', cursor)
      const page = await this.#get(`api/objects?${query}`)
      if (!mine()) return
      this.to.page(page)
      cursor = page.cursor
      if (cursor !== null && pause) await sleep(pause)
      if (!mine()) return
    } while (cursor !== null && cursor !== undefined)
    this.to.end()
  }

  async #get (path) {
    let response
    try {
      response = await fetch(new URL(path, this.base), {
        cache: 'no-store', signal: AbortSignal.timeout(SILENCE)
      })
    } catch {
      throw new Error('the gateway does not answer') // who is asked; a daemon that is gone it tells itself
    }
    if (!response.ok) {
      const said = (await response.text().catch(() => '')).slice(0, 200).trim()
      const error = new Error(said || `the gateway answered ${response.status}`)
      error.status = response.status
      throw error
    }
    return response.json().catch(() => { throw new Error('the answer was cut off') })
  }
}
