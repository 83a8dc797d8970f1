/** The same work in Python, run beside ours: a script of benchmarks/ that prints one JSON line per case. */
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';

export interface PeerReading {
  case: string;
  tokens_per_s?: number;
  step_ms?: number;
  peak_gib?: number;
  error?: string;
}

export const python = process.env.ATTUNE_PYTHON ?? 'python3';

/** Readings by case; empty where Python lacks a package the script needs. */
export function runPeer(script: string, args: string[]): Map<string, PeerReading> {
  const path = join(import.meta.dirname, '..', script);
  const found = new Map<string, PeerReading>();
  if (!existsSync(path)) return found;
  const result = spawnSync(python, [path, ...args], { encoding: 'utf8', maxBuffer: 2 ** 26 });
  for (const line of (result.stdout ?? '').split('\n')) {
    if (!line.startsWith('{"')) continue; // trainers print dictionaries of their own
    const reading = JSON.parse(line) as PeerReading;
    found.set(reading.case, reading);
  }
  if (found.size === 0)
    console.error(`no peer readings from ${python}: ${(result.stderr ?? '').trim().split('\n').at(-1) ?? ''}`);
  return found;
}
