/** `attune train …` ended by SIGKILL at random moments and resumed until it is through, against a run that nothing disturbed. */
import { existsSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import type { Reading } from '../run.ts';
import { attune, task } from './lives.ts';
import { writeModelConfig } from './model.ts';

const shared = ['--save-steps', '3', '--eval-steps', '6', '--report-to', 'none', '--no-lora', '--grad-accum', '1'];

/** Each trainer's short job; the data are made by `attune tasks generate`. */
export const jobs: Record<string, { kind?: string; args: string[] }> = {
  sft: { kind: 'sft', args: ['--batch-size', '4', '--max-steps', '12', '--lr', '1e-3'] },
  reward: { kind: 'preference', args: ['--batch-size', '4', '--max-steps', '12', '--lr', '1e-3'] },
  preference: { kind: 'preference', args: ['--loss', 'dpo', '--batch-size', '4', '--max-steps', '12', '--lr', '1e-3'] },
  policy: {
    args: [
      ...['--task', task, '--batch-size', '2', '--group-size', '4', '--max-steps', '12', '--max-new-tokens', '16'],
      ...['--eval-num-prompts', '4', '--eval-samples', '0', '--eos-penalty', '0.5', '--lr', '1e-3'],
    ],
  },
};

/** What must not depend on how often a run was ended. */
function outcome(run: string): string {
  const weights = readFileSync(join(run, 'final', 'model.safetensors')).toString('base64');
  const rows = readFileSync(join(run, 'metrics.jsonl'), 'utf8').trim().split('\n');
  const steady = rows.map((line) =>
    Object.fromEntries(Object.entries(JSON.parse(line)).filter(([name]) => !/time|seconds|per_second/.test(name))),
  );
  return JSON.stringify({ weights, steady, rollouts: rolloutsOf(run) });
}

function rolloutsOf(run: string): unknown[] {
  const file = join(run, 'rollouts.db');
  if (!existsSync(file)) return [];
  const database = new DatabaseSync(file, { readOnly: true });
  const columns = 'step, prompt_index, prompt, completion, reward';
  const trained = database.prepare(`SELECT ${columns}, rollout_index, advantage FROM rollouts ORDER BY id`).all();
  const evaluated = database.prepare(`SELECT ${columns} FROM eval_rollouts ORDER BY id`).all();
  database.close();
  return [trained, evaluated];
}

const hasCheckpoint = (run: string) => existsSync(run) && readdirSync(run).some((name) => /^step-\d+$/.test(name));

/** A model of 16 dimensions with the tokenizer of models/tiny, from one step of `train sft`. */
async function smallModel(folder: string): Promise<string> {
  const data = join(folder, 'base.jsonl');
  await attune(['tasks', 'generate', '--kind', 'sft', '--tasks', task, '--count', '20', '--out', data]);
  const model = ['--from-config', writeModelConfig(folder), '--tokenizer', 'models/tiny'];
  const logs = ['--log-dir', join(folder, 'logs'), '--report-to', 'none'];
  const where = ['--output-dir', folder, ...logs, '--run-name', 'base'];
  const made = await attune(['train', 'sft', ...model, '--dataset', data, '--max-steps', '1', ...where]);
  if (!made.ended) throw new Error(`no model was made: ${made.errors}`);
  return join(folder, 'base', 'final');
}

/** A reading after every run that came to its end: a soak that is cut off still counts. */
export async function* kills(folder: string, trainers: string[], wanted: number): AsyncGenerator<Reading> {
  const model = await smallModel(folder);
  for (const trainer of trainers) yield* killed(folder, model, trainer, Math.ceil(wanted / trainers.length));
}

async function* killed(folder: string, model: string, trainer: string, share: number): AsyncGenerator<Reading> {
  const { kind, args } = jobs[trainer] as (typeof jobs)[string];
  const data = join(folder, `${trainer}.jsonl`);
  if (kind !== undefined)
    await attune(['tasks', 'generate', '--kind', kind, '--tasks', task, '--count', '200', '--out', data]);
  const train = (name: string) => {
    const run = join(folder, trainer, name);
    const where = ['--output-dir', join(folder, trainer), '--log-dir', join(folder, 'logs')];
    if (hasCheckpoint(run)) return ['train', trainer, '--resume-from', run];
    rmSync(run, { recursive: true, force: true });
    const source = kind === undefined ? [] : ['--dataset', data];
    return ['train', trainer, '--model', model, ...shared, ...source, ...args, ...where, '--run-name', name];
  };
  const whole = await attune(train('whole'));
  if (!whole.ended) throw new Error(`${trainer} does not train: ${whole.errors}`);
  const expected = outcome(join(folder, trainer, 'whole'));
  let { seconds } = whole;
  let [killed, begun, runs, equal] = [0, 0, 0, 0];
  while (killed < share) {
    const name = `run-${runs}`;
    let [own, ownBegun] = [0, 0];
    for (;;) {
      // One life in ten dies before its first step, the others anywhere between there and a little after their end.
      const early = Math.random() < 0.1;
      const death = early ? { afterStart: 0.2 + Math.random() } : { afterBegin: 1.1 * Math.random() * seconds };
      const life = await attune(train(name), killed + own < share ? death : undefined);
      if (life.ended) {
        seconds = 0.5 * (seconds + life.seconds); // the machine's load changes
        break;
      }
      if (!life.killed) throw new Error(`${trainer} does not resume: ${life.errors}`);
      own++;
      if (life.begun) ownBegun++;
    }
    runs++;
    killed += own;
    begun += ownBegun;
    if (outcome(join(folder, trainer, name)) === expected) equal++;
    else process.exitCode = 1;
    rmSync(join(folder, trainer, name), { recursive: true });
    yield { name: trainer, kills: killed, whileTraining: begun, runs, bitIdentical: equal };
  }
}
