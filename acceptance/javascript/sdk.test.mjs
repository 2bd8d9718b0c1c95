// Copyright 2026 The envd-go Authors
// SPDX-License-Identifier: Apache-2.0

// The official JavaScript SDK, against the embedded envd at port 49983.

import assert from 'node:assert/strict'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { after, before, test } from 'node:test'

import { CommandExitError, NotFoundError, Sandbox, TimeoutError } from 'e2b'

let sandbox, dir

before(async () => {
  sandbox = await Sandbox.create({ debug: true, apiKey: 'e2b_' + '0'.repeat(40) })
  dir = await mkdtemp(path.join(tmpdir(), 'envd-go-sdk-'))
})

after(() => rm(dir, { recursive: true, force: true }))

const user = process.env.ENVD_USER || undefined

test('a command: output, variables, directory, exit code', async () => {
  const result = await sandbox.commands.run('echo "$GREETING from $PWD"; echo oops >&2', {
    envs: { GREETING: 'hello' }, cwd: dir, user,
  })
  assert.equal(result.exitCode, 0)
  assert.equal(result.stdout, `hello from ${dir}\n`)
  assert.equal(result.stderr, 'oops\n')
})

test('a command that fails', async () => {
  await assert.rejects(sandbox.commands.run('exit 3', { user }), (err) => {
    assert.ok(err instanceof CommandExitError)
    assert.equal(err.exitCode, 3)
    return true
  })
})

test('a command that takes too long', async () => {
  await assert.rejects(sandbox.commands.run('sleep 30', { timeoutMs: 500, user }), TimeoutError)
  // The SDK gives up on its own clock: envd's may be a little behind.
  const deadline = Date.now() + 10_000
  while ((await sandbox.commands.list()).some((p) => p.args.some((a) => a.includes('sleep 30')))) {
    assert.ok(Date.now() < deadline, 'the command still runs')
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
})

test('a command in the background: list, input, attach, kill', async () => {
  let seen = ''
  const cat = await sandbox.commands.run('cat', { background: true, stdin: true, user, onStdout: (text) => { seen += text } })
  assert.ok((await sandbox.commands.list()).some((p) => p.pid === cat.pid))
  let attached = ''
  const again = await sandbox.commands.connect(cat.pid, { onStdout: (text) => { attached += text } })
  await sandbox.commands.sendStdin(cat.pid, 'line\n')
  const deadline = Date.now() + 10_000
  while (!(seen.includes('line') && attached.includes('line'))) {
    assert.ok(Date.now() < deadline, `the input did not come back: ${JSON.stringify([seen, attached])}`)
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
  assert.equal(await sandbox.commands.kill(cat.pid), true)
  await assert.rejects(cat.wait(), CommandExitError)
  await assert.rejects(again.wait(), CommandExitError)
  assert.equal(await sandbox.commands.kill(cat.pid), false)
})

test('a terminal: size, resize, input, exit', async () => {
  let output = ''
  const decoder = new TextDecoder()
  const pty = await sandbox.pty.create({ cols: 80, rows: 24, user, onData: (data) => { output += decoder.decode(data, { stream: true }) } })
  const until = async (text) => {
    const deadline = Date.now() + 10_000
    while (!output.includes(text)) {
      assert.ok(Date.now() < deadline, `${JSON.stringify(text)} did not come: ${JSON.stringify(output)}`)
      await new Promise((resolve) => setTimeout(resolve, 10))
    }
  }
  const type = (text) => sandbox.pty.sendInput(pty.pid, new TextEncoder().encode(text))
  await type('stty size\n')
  await until('24 80')
  await sandbox.pty.resize(pty.pid, { cols: 100, rows: 40 })
  await type('stty size\n')
  await until('40 100')
  await type('exit 0\n')
  assert.equal((await pty.wait()).exitCode, 0)
})

test('files: write, read, list, information, rename, remove', async () => {
  const file = path.join(dir, 'sub dir', 'ünicode.txt')
  const info = await sandbox.files.write(file, 'content', { user })
  assert.equal(info.path, file)
  assert.equal(await sandbox.files.read(file, { user }), 'content')
  assert.deepEqual(Buffer.from(await sandbox.files.read(file, { format: 'bytes', user })), Buffer.from('content'))
  const entry = await sandbox.files.getInfo(file, { user })
  assert.equal(entry.size, 7)
  assert.equal(entry.type, 'file')
  const names = (await sandbox.files.list(dir, { user })).map((e) => e.name)
  assert.deepEqual(names, ['sub dir'])
  await sandbox.files.rename(file, path.join(dir, 'renamed'), { user })
  assert.equal(await sandbox.files.exists(file, { user }), false)
  await sandbox.files.remove(path.join(dir, 'renamed'), { user })
  await assert.rejects(sandbox.files.read(path.join(dir, 'renamed'), { user }), NotFoundError)
  assert.equal(await sandbox.files.makeDir(path.join(dir, 'made'), { user }), true)
  assert.equal(await sandbox.files.makeDir(path.join(dir, 'made'), { user }), false)
})

test('several files at once, and a large one', async () => {
  const large = 'x'.repeat(5_000_000)
  await sandbox.files.write([
    { path: path.join(dir, 'many', 'one'), data: '1' },
    { path: path.join(dir, 'many', 'large'), data: large },
  ], { user })
  assert.equal(await sandbox.files.read(path.join(dir, 'many', 'one'), { user }), '1')
  assert.equal((await sandbox.files.read(path.join(dir, 'many', 'large'), { user })).length, large.length)
})

test('a watch', async () => {
  const events = []
  const handle = await sandbox.files.watchDir(dir, (event) => { events.push(event) }, { user })
  await sandbox.files.write(path.join(dir, 'watched'), 'x', { user })
  const deadline = Date.now() + 10_000
  while (!events.some((e) => e.name === 'watched' && e.type === 'create')) {
    assert.ok(Date.now() < deadline, `no event came: ${JSON.stringify(events)}`)
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
  await handle.stop()
})
