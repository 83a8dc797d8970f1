/**
 * The studio on a large run: a million rollouts and 100,000 rows of metrics are made, then the server's answers are
 * timed as a page asks for them, and the pages themselves in a browser where there is one. `npm run bench -- studio [--rollouts 1000000] [--rows 100000]`
 */
import { createWriteStream, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { Random } from '../src/random.ts';
import { schemaSql } from '../src/runs/store/schema.ts';
import { startStudio } from '../src/studio/index.ts';
import { packageRoot } from '../src/tensor/engine/native.ts';
import { signals } from '../src/trainers/policy/signals.ts';
import type { Reading } from './run.ts';
import { firstPaints } from './studio/first-paint.ts';

const words =
  'sort these numbers in ascending order answer with one word the sum of first then carry over ten left right because so that we get which is larger smaller equal count letters backward'.split(
    ' ',
  );

/** Rollouts whose tokens are stored: their KL is worked out for the index. */
const withTokens = 100_000;

export async function* run(args: string[]): AsyncGenerator<Reading> {
  const { values } = parseArgs({
    args,
    options: { rollouts: { type: 'string', default: '1000000' }, rows: { type: 'string', default: '100000' } },
  });
  const root = mkdtempSync(join(tmpdir(), 'attune-bench-studio-'));
  try {
    const folder = join(root, 'runs', 'grpo');
    mkdirSync(folder, { recursive: true });
    yield await timed('make rollouts', () => makeRollouts(join(folder, 'rollouts.db'), Number(values.rollouts)));
    yield await timed('make metrics', () => makeMetrics(folder, Number(values.rows)));
    yield* answers(root);
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
}

async function timed(name: string, work: () => unknown): Promise<Reading> {
  const started = performance.now();
  await work();
  return { name, milliseconds: Math.round(performance.now() - started) };
}

function makeRollouts(path: string, count: number): void {
  using database = new DatabaseSync(path);
  database.exec(`pragma journal_mode = wal; pragma synchronous = off; ${schemaSql}`);
  const insert = database.prepare(
    'insert into rollouts(id, step, epoch, prompt_index, rollout_index, prompt, completion, reward, advantage) values (?, ?, 0, ?, ?, ?, ?, ?, ?)',
  );
  const part = database.prepare("insert into reward_parts(rollout_id, name, value) values (?, 'correct', ?)");
  const fact = database.prepare(
    'insert into rollout_facts(rollout_id, task, ended, length_tokens) values (?, ?, ?, ?)',
  );
  const tokens = database.prepare(
    'insert into rollout_tokens(rollout_id, prompt_ids, completion_ids, logprobs, ref_logprobs) values (?, ?, ?, ?, ?)',
  );
  const random = new Random('bench studio');
  const noTokens = new Uint8Array(0);
  const bytes = (numbers: Int32Array | Float32Array) => new Uint8Array(numbers.buffer);
  const logprobs = (length: number) => Float32Array.from({ length }, () => -random.float());
  const text = (length: number) => Array.from({ length }, () => words[random.int(0, words.length - 1)]).join(' ');
  database.exec('begin');
  let prompt = '';
  for (let id = 1; id <= count; id++) {
    const group = Math.floor((id - 1) / 8);
    if ((id - 1) % 8 === 0) prompt = `${text(12)} ${group}`;
    const length = random.int(4, 40);
    const reward = random.int(0, 100) / 100;
    const rare = id % 5000 === 0 ? ' zebra' : '';
    insert.run(
      id,
      Math.floor((id - 1) / 512) + 1,
      group,
      (id - 1) % 8,
      prompt,
      text(length) + rare,
      reward,
      reward - 0.5,
    );
    part.run(id, Number(reward > 0.5));
    fact.run(id, group % 3 === 0 ? 'gcd' : 'chain_sum', Number(id % 50 !== 0), length);
    if (id <= withTokens) {
      const [own, other] = [bytes(logprobs(length)), bytes(logprobs(length))];
      tokens.run(id, noTokens, bytes(new Int32Array(length)), own, other);
    }
  }
  database.exec('commit');
}

async function makeMetrics(folder: string, count: number): Promise<void> {
  const info = { name: 'grpo', command: 'train policy', status: 'finished', step: count, totalSteps: count };
  writeFileSync(
    join(folder, 'run.json'),
    JSON.stringify({ ...info, created: new Date().toISOString(), rollouts: 'rollouts.db' }),
  );
  writeFileSync(join(folder, 'config.json'), JSON.stringify({ model: 'models/tiny', algorithm: 'grpo' }));
  const file = createWriteStream(join(folder, 'metrics.jsonl'));
  const random = new Random('bench metrics');
  const names = [
    'loss',
    'policy_loss',
    'reward',
    'accuracy',
    'kl',
    'entropy',
    'grad_norm',
    'lr',
    'length_mean',
    'examples',
  ];
  const more = Array.from({ length: 20 }, (_, i) => `metric_${i}`);
  for (let step = 1; step <= count; step++) {
    const row = [...names, ...more].map((name) => [`train/${name}`, random.int(0, 1_000_000) / 1e6]);
    if (!file.write(`${JSON.stringify({ step, time: 1000 * step, ...Object.fromEntries(row) })}\n`))
      await new Promise<void>((resolve) => file.once('drain', () => resolve()));
  }
  await new Promise<void>((resolve) => file.end(resolve));
}

async function* answers(root: string): AsyncGenerator<Reading> {
  const page = join(packageRoot, 'dist', 'studio-page');
  await using studio = await startStudio({
    ...{ root, port: 0, version: 'bench', cache: join(root, 'cache'), page },
    above: { verbs: [], signals },
  });
  const cookie = (await fetch(studio.newUrl())).headers.get('set-cookie')?.split(';')[0] ?? '';
  const ask = async (path: string) => {
    const answer = await fetch(`${studio.url}/api${path}`, { headers: { cookie } });
    if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
    return answer.json();
  };
  const first = async (name: string, path: string) => timed(name, () => ask(path));
  const started = performance.now();
  yield await first('runs, first', '/runs');
  const [{ id }] = (await ask('/runs')) as [{ id: string }];
  yield await first(
    'metrics of 4 curves, first',
    `/runs/${id}/metrics?names=train/loss,train/reward,train/kl,train/entropy`,
  );
  yield await first('the same again', `/runs/${id}/metrics?names=train/loss,train/reward,train/kl,train/entropy`);
  yield await first('run, first', `/runs/${id}`);
  yield await first('rollouts, first page, no index yet', `/runs/${id}/rollouts?limit=50`);
  yield await first('rollouts of a step, no index yet', `/runs/${id}/rollouts?step=900`);
  for (;;) {
    const { indexed } = (await ask(`/runs/${id}/rollouts?limit=1`)) as { indexed: number };
    if (indexed >= 1) break;
    await sleep(1000);
  }
  yield { name: 'index whole after', milliseconds: Math.round(performance.now() - started) };
  const filters: [string, string][] = [
    ['reward over 0.9', 'minReward=0.9'],
    ['reward, best first', 'sort=reward&dir=desc'],
    ['advantage, best first', 'sort=advantage&dir=desc'],
    ['KL of 100,000, highest first', 'sort=kl&dir=desc'],
    ['cut off, long, newest first', 'ending=cut&minLength=30&sort=step&dir=desc'],
    ['wrong, of one task, by length', 'correct=0&task=gcd&sort=length'],
    ['steps 500–600, reward under 0.2', 'from=500&to=600&maxReward=0.2'],
    ['a rare word', 'q=zebra'],
    ['two words, common', 'q=larger+carry'],
    ['a phrase', `q=${encodeURIComponent('"ascending order"')}`],
    ['a rare word, best first', 'q=zebra&sort=reward&dir=desc'],
    ['page 1000 of the best', 'sort=reward&dir=desc&offset=50000'],
  ];
  for (const [name, query] of filters) {
    yield await first(`filter: ${name}`, `/runs/${id}/rollouts?limit=50&${query}`);
  }
  yield await first('steps', `/runs/${id}/steps`);
  yield await first('one prompt over time', `/runs/${id}/prompts/777`);
  yield await first('one rollout', `/runs/${id}/rollouts/777`);
  yield* firstPaints(studio, id);
}
