/** A command of attune on a real pseudo-terminal, by util-linux' `script`. */
import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'vitest';
import { packageRoot } from '../../tensor/engine/native.ts';

export const hasScript = spawnSync('script', ['--version']).status === 0;

export const keys = {
  up: '\u001b[A',
  down: '\u001b[B',
  escape: '\u001b',
  enter: '\r',
  ctrlC: '\u0003',
  ctrlD: '\u0004',
};

export interface Terminal {
  type(text: string): void;
  /** Waits until the screen so far passes the test, or holds the text. */
  until(test: string | RegExp): Promise<void>;
  /** All that was written to the screen. */
  shown(): string;
  /** The exit code. */
  ended: Promise<number | null>;
}

/** Runs `attune …args` on a terminal; a failed test leaves no process behind. */
export async function onTerminal(args: readonly string[], body: (terminal: Terminal) => Promise<void>): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'attune-terminal-'));
  const log = join(folder, 'screen.log');
  writeFileSync(log, '');
  const command = [process.execPath, join(packageRoot, 'bin/attune.mjs'), ...args].map((word) => `'${word}'`).join(' ');
  const child = spawn('script', ['-qfec', command, log], {
    stdio: ['pipe', 'ignore', 'ignore'],
    env: { ...process.env, TERM: 'xterm' },
  });
  const shown = () => readFileSync(log, 'utf8');
  const passes = (test: string | RegExp) => (typeof test === 'string' ? shown().includes(test) : test.test(shown()));
  try {
    await body({
      type: (text) => child.stdin.write(text),
      async until(test) {
        for (let i = 0; i < 4800 && !passes(test); i++) await new Promise((resolve) => setTimeout(resolve, 50));
        expect(passes(test), `${test} in ${JSON.stringify(shown().slice(-600))}`).toBe(true);
      },
      shown,
      ended: new Promise((resolve) => child.on('exit', resolve)),
    });
  } finally {
    child.kill();
    rmSync(folder, { recursive: true, force: true });
  }
}
