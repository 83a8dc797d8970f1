/** Outcomes on disk: one line of JSON per job, appended when it is done, so that a study goes on where it stopped. */
import { appendFileSync, existsSync, mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Outcome, Values } from './study.ts';

const fileOf = (folder: string, study: string) => join(folder, study, 'results.jsonl');

export function readOutcomes(folder: string, study: string): Outcome[] {
  const file = fileOf(folder, study);
  if (!existsSync(file)) return [];
  const found = new Map<string, Outcome>();
  for (const line of readFileSync(file, 'utf8').split('\n').filter(Boolean)) {
    const outcome = JSON.parse(line) as Outcome;
    found.set(`${outcome.condition} ${outcome.seed}`, outcome);
  }
  return [...found.values()];
}

/** Appends one outcome. A line is written at once, so that several processes may share a file. */
export function addOutcome(folder: string, study: string, outcome: Outcome): void {
  mkdirSync(join(folder, study), { recursive: true });
  appendFileSync(fileOf(folder, study), `${JSON.stringify({ ...outcome, values: rounded(outcome.values) })}\n`);
}

/** Five digits are more than the spread over seeds allows to read. */
function rounded(values: Values): Values {
  const short = (value: number) => (Number.isFinite(value) ? Number(value.toPrecision(5)) : value);
  return Object.fromEntries(
    Object.entries(values).map(([name, value]) => [name, Array.isArray(value) ? value.map(short) : short(value)]),
  );
}
