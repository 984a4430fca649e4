// docs/NODE.md, README.md of the package: their examples run, one after the other, in one program.

import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdir, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import path from 'node:path'
import test from 'node:test'
import { promisify } from 'node:util'
import { PACKAGE, ROOT, fixture, withArrow } from './harness.mjs'

const { daemon } = await fixture()

for (const [file, least] of [['docs/NODE.md', 6], ['client/node/README.md', 1]]) test(`the examples of ${file}`, withArrow, async () => {
  const text = await readFile(path.join(ROOT, file), 'utf8')
  const blocks = [...text.matchAll(/^```js\n(.*?)^```/gms)].map(match => match[1])
  assert.ok(blocks.length >= least)
  const place = path.join(PACKAGE, '..', `docs-${process.pid}`)
  try {
    await mkdir(path.join(place, 'node_modules'), { recursive: true })
    await symlink(PACKAGE, path.join(place, 'node_modules', 'gpubufd'))
    await writeFile(path.join(place, 'manual.mjs'), blocks.join('\n'))
    const { stdout, stderr } = await promisify(execFile)(process.execPath, [path.join(place, 'manual.mjs')],
      { cwd: ROOT, env: { ...process.env, GPUBUFD_SOCKET: daemon.socket } })
    assert.equal(stderr, '')
    for (const said of blocks.join('\n').matchAll(/console\.log\(.*\/\/ (.*)$/gm)) {
      assert.ok(stdout.includes(said[1]), `not said: ${said[1]}\n${stdout}`)
    }
  } finally {
    await rm(place, { recursive: true, force: true })
  }
})
