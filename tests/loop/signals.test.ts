import { spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ONE_KEYSTROKE_MS } from '../../src/cli/terminal/interrupt.ts';
import { checkpointFault, cleanStale } from '../../src/runs/checkpoints.ts';
import { openRun } from '../../src/runs/open-run.ts';

let folder = '';
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'attune-signals-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

/** Sends each signal when the child has said the word. */
function train(
  saveMs: number,
  signals: readonly [string, NodeJS.Signals][],
): Promise<{ code: number | null; output: string }> {
  return new Promise((resolve) => {
    const script = new URL('./signal-child.ts', import.meta.url).pathname;
    const child = spawn(process.execPath, [script, folder, String(saveMs)], { stdio: ['ignore', 'pipe', 'inherit'] });
    const waiting = [...signals];
    let output = '';
    child.stdout.on('data', (text) => {
      output += text;
      const [word, signal] = waiting[0] ?? [];
      if (word && signal && output.includes(word)) {
        waiting.shift();
        // a person's second Ctrl-C is not the first one passed on by npm
        setTimeout(() => child.kill(signal), word === 'saving' ? 1.1 * ONE_KEYSTROKE_MS : 0);
      }
    });
    child.on('close', (code) => resolve({ code, output }));
  });
}

describe('signals', () => {
  it.each(['SIGINT', 'SIGTERM'] as const)('%s saves under the step reached and ends the run', async (signal) => {
    const { code, output } = await train(0, [['ready', signal]]);
    expect(code).toBe(0);
    const result = JSON.parse(output.trim().split('\n').at(-1) ?? '');
    expect(result.ended).toBe('interrupted');
    expect(result.checkpoint).toBe(join(folder, 'run', `step-${result.step}`));
    expect(await checkpointFault(result.checkpoint)).toBeUndefined();
    expect(openRun(join(folder, 'run')).status).toBe('interrupted');
  });

  it('a second Ctrl-C leaves at once; what it cut off is cleaned up later', async () => {
    const { code, output } = await train(60_000, [
      ['ready', 'SIGINT'],
      ['saving', 'SIGINT'],
    ]);
    expect(code).toBe(130);
    expect(output).not.toContain('interrupted');
    const run = join(folder, 'run');
    expect(openRun(run).status).toBe('killed');
    expect(cleanStale(run).length).toBe(1);
    expect(readdirSync(run).filter((name) => /^\.|step-/.test(name))).toEqual([]);
  });
});
