/** `attune serve` as a process: what it says about a wrong start, and how it ends. */
import { type ChildProcess, spawn } from 'node:child_process';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { attune } from '../../tests/support/command-line.ts';

const root = join(import.meta.dirname, '../..');
const tiny = join(root, 'models/tiny');

describe('a start that cannot be', () => {
  it('a model that is not there', async () => {
    const { code, err } = await attune('serve', './no-such-model', '--port', '0');
    expect(code).toBe(2);
    expect(err).toContain('no-such-model');
  });

  it('a port that is taken', async () => {
    const other = createServer();
    await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve));
    const { port } = other.address() as AddressInfo;
    const { code, err } = await attune('serve', tiny, '--dtype', 'float32', '--port', String(port));
    await new Promise((resolve) => other.close(resolve));
    expect(code).toBe(2);
    expect(err).toContain(`Port ${port} is taken: name another with --port.`);
  });

  it('a key whose variable is not set, and an open address without a key', async () => {
    const unset = await attune('serve', tiny, '--port', '0', '--api-key-env', 'ATTUNE_NO_SUCH_KEY');
    expect(unset).toMatchObject({ code: 2 });
    expect(unset.err).toContain('--api-key-env ATTUNE_NO_SUCH_KEY: there is no such variable');
    const open = await attune('serve', tiny, '--dtype', 'float32', '--port', '0', '--host', '0.0.0.0');
    expect(open).toMatchObject({ code: 2 });
    expect(open.err).toContain('Others can reach 0.0.0.0');
  });

  it('an adapter that is not there', async () => {
    const { code, err } = await attune('serve', tiny, '--port', '0', '--adapter', 'x=nowhere');
    expect([code, err]).toEqual([2, expect.stringContaining('--adapter x=nowhere: there is no folder nowhere.')]);
  });

  it('two models of one name, and a folder that is no model', async () => {
    const twice = await attune('serve', tiny, `tiny=${tiny}`, '--dtype', 'float32', '--port', '0');
    expect(twice).toMatchObject({ code: 2 });
    expect(twice.err).toContain('Two models are named "tiny"');
    const folder = await attune('serve', join(root, 'docs'), '--port', '0');
    expect(folder.code).toBe(2);
  });
});

/** A server in a process of its own, once it listens. */
async function started(): Promise<{ child: ChildProcess; url: string; told: () => string; ended: Promise<unknown> }> {
  const args = [join(root, 'bin/attune.mjs'), 'serve', tiny, '--port', '0', '--dtype', 'float32', '--quiet'];
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  let text = '';
  const ended = new Promise((resolve) => child.on('close', (code, signal) => resolve(code ?? signal)));
  for (const stream of [child.stdout, child.stderr]) stream?.on('data', (piece) => (text += piece));
  for (let i = 0; i < 4800 && child.exitCode === null && !/serving tiny at/.test(text); i++)
    await new Promise((resolve) => setTimeout(resolve, 50));
  const url = /at (http\S+)\/v1/.exec(text)?.[1];
  expect(url, text).toBeDefined();
  return { child, url: url as string, told: () => text, ended };
}

const asked = (url: string, maxTokens: number) =>
  fetch(`${url}/v1/completions`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    // A grammar-free text at a high temperature goes on until it is cut.
    body: JSON.stringify({ prompt: 'a', max_tokens: maxTokens, temperature: 2, stream: true, n: 16 }),
  });

describe('SIGTERM', () => {
  it('finishes what was begun, takes nothing new, and ends with 0', async () => {
    const { child, url, told, ended } = await started();
    const answer = await asked(url, 400);
    expect(answer.status).toBe(200);
    child.kill('SIGTERM');
    const text = await answer.text();
    expect(text.trim().endsWith('data: [DONE]')).toBe(true);
    expect(text.match(/"finish_reason":"(stop|length)"/g)).toHaveLength(16);
    expect(await ended).toBe(0);
    expect(told()).toContain('finishing what was begun');
    await expect(asked(url, 1)).rejects.toThrow();
  });

  it('a second one ends at once', async () => {
    const { child, url, told, ended } = await started();
    // Several, so that not all are written before this process gets to send the second signal.
    const answers = await Promise.all(Array.from({ length: 4 }, () => asked(url, 900)));
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
    child.kill('SIGTERM');
    while (!told().includes('finishing')) await new Promise((resolve) => setTimeout(resolve, 5));
    child.kill('SIGTERM');
    const texts = await Promise.all(answers.map((answer) => answer.text().catch(() => '')));
    expect(texts.every((text) => text.includes('[DONE]'))).toBe(false);
    expect(await ended).toBe(0);
  });
});
