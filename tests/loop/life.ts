/** One life of a training program that is killed without warning (SIGKILL), and as many as it takes to its end. */
import { spawn } from 'node:child_process';
import { expect } from 'vitest';

/** Runs a script of this folder; kills it `delayMs` after the first line it prints. Whether it got to its end, and what it said. */
export function life(script: string, args: string[], delayMs?: number): Promise<{ ended: boolean; errors: string }> {
  return new Promise((resolve) => {
    const path = new URL(script, import.meta.url).pathname;
    const child = spawn(process.execPath, [path, ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
    let errors = '';
    child.stderr.on('data', (text) => {
      errors += text;
    });
    child.stdout.once('data', () => {
      if (delayMs !== undefined) setTimeout(() => child.kill('SIGKILL'), delayMs);
    });
    child.stdout.resume();
    child.on('close', (code) => resolve({ ended: code === 0, errors }));
  });
}

/** What a life says that begins after the run was finished: the one before it was killed between the run's end and its own. */
const nothingToDo = /^NothingToDo: .* is finished/m;

/** Lives one after another until one ends, killed while `kills` are still owed; returns how many there were. */
export async function livesToTheEnd(script: string, args: string[], kills: number, longestMs: number): Promise<number> {
  for (let killed = 0; ; killed++) {
    const { ended, errors } = await life(script, args, killed < kills ? Math.random() * longestMs : undefined);
    if (nothingToDo.test(errors)) return killed;
    expect(errors).toBe('');
    if (ended) return killed;
  }
}
