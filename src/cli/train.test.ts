import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { attune } from '../../tests/support/command-line.ts';
import { tinyModel } from '../../tests/support/tiny-model.ts';
import { preferenceRows } from '../tasks/index.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-train-'));
const pairs = join(folder, 'pairs.jsonl');
let model: string;
beforeAll(async () => {
  model = await tinyModel(join(folder, 'model'));
  const rows = [...preferenceRows({ tasks: 'chain_sum:1', count: 40 })];
  writeFileSync(pairs, rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
  vi.stubEnv('ATTUNE_CACHE', join(folder, 'cache'));
});
afterAll(() => {
  vi.unstubAllEnvs();
  rmSync(folder, { recursive: true });
});

const run = ['--output-dir', join(folder, 'rm'), '--log-dir', join(folder, 'logs'), '--report-to', 'none'];

it.each(['sft', 'reward', 'preference'])('train %s asks for data before it looks for a model', async (kind) => {
  const { code, err } = await attune('train', kind, '--model', './nowhere');
  expect([code, err]).toEqual([2, expect.stringContaining('There is no data to train on: name some with --dataset')]);
});

it('shows what a training would do, and does nothing', async () => {
  const { code, out } = await attune('train', 'reward', '--model', model, '--dataset', pairs, '--lr=3e-4', '--dry_run');
  expect(code).toBe(0);
  expect(out).toMatch(/lr +0\.0003 +\(command line\)/);
  expect(out).toMatch(/Model +.*qwen3, 28,096 parameters \(28,096 trained\), float32/);
  expect(out).toMatch(/Steps +1, each of 2 micro-batches/);
});

it('trains, evaluates and scores from the command line', async () => {
  const train = [
    '--model',
    model,
    '--dataset',
    pairs,
    '--batch-size',
    '8',
    '--grad-accum',
    '1',
    '--eval-num-batches',
    '2',
  ];
  const trained = await attune('train', 'reward', ...train, ...run, '--run-name', 'r', '--max-steps', '2');
  expect(trained.err + trained.out).toContain('saved ');
  expect(trained.code).toBe(0);
  const final = join(folder, 'rm', 'r', 'final');
  const out = join(folder, 'evaluation');
  const sample = ['--task', 'chain_sum:1', '--subset-size', '8', '--output-dir', out];
  const evaluated = await attune('evaluate', 'reward', '--checkpoint', final, ...sample);
  expect(evaluated.out).toMatch(/Accuracy +\d/);
  const items = join(folder, 'items.jsonl');
  writeFileSync(items, '{"prompt": "What is 1 + 1?", "response": "2"}\n{"prompt": "Hi\u2028", "response": ""}\n');
  const scored = await attune('score', '--checkpoint', final, items);
  const rows = scored.out.trim().split('\n');
  expect(rows.map((row) => typeof JSON.parse(row).reward)).toEqual(['number', 'number']);

  const quantised = await attune('score', '--checkpoint', final, '--quant_type', 'int8', items);
  for (const [i, row] of quantised.out.trim().split('\n').entries()) {
    const { reward } = JSON.parse(row);
    expect(reward).not.toBe(JSON.parse(rows[i] as string).reward);
    expect(reward).toBeCloseTo(JSON.parse(rows[i] as string).reward, 1);
  }
  const report = await attune('evaluate', 'reward', '--checkpoint', final, '--quant-type=int4', '--json', ...sample);
  expect(JSON.parse(report.out).quant_type).toBe('int4');
  for (const command of [['score'], ['evaluate', 'reward', '--task', 'gcd:1']]) {
    const { code, err } = await attune(...command, '--checkpoint', final, '--quant-type', 'int3');
    expect([code, err]).toEqual([2, expect.stringMatching(/quant-type.*int8.*int4/)]);
  }
});

it.each([[], ['--dry-run']])('tells what is wrong with --from-config %s', async (...more) => {
  const files = { 'torn.json': '{"model_type": ', 'null.json': 'null', 'list.json': '[]', 'bare/notes.txt': '' };
  mkdirSync(join(folder, 'bare'), { recursive: true });
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
  const faults = {
    'none.json': 'none.json does not exist: name',
    'torn.json': 'not valid JSON',
    'null.json': 'not a JSON object',
    'list.json': 'not a JSON object',
    bare: 'no config.json',
  };
  for (const [name, fault] of Object.entries(faults)) {
    const fresh = ['--from-config', join(folder, name), '--tokenizer', model, '--dataset', pairs];
    const { code, err } = await attune('train', 'sft', ...fresh, '--output-dir', join(folder, 'fresh'), ...more);
    expect([name, code, err]).toEqual([name, 2, expect.stringContaining(fault)]);
  }
});

it('a resumed run that evaluates on other held-out examples says so', async () => {
  const common = ['--model', model, '--dataset', pairs, '--batch-size', '8', '--grad-accum', '1'];
  const first = await attune('train', 'reward', ...common, ...run, '--run-name', 'other', '--max-steps', '1');
  expect(first.code, first.err).toBe(0);
  const resumed = ['train', 'reward', '--resume-from', join(folder, 'rm', 'other'), '--max-steps', '2'];
  const changed = await attune(...resumed, '--eval-num-batches', '1', '--eval-seed', '7');
  expect(changed.err).toContain(
    'with --eval-num-batches 1 (was 32), --eval-seed 7 (was 1234), evaluations after step 1 are of other held-out examples than those before',
  );
  const same = await attune(...resumed.slice(0, -1), '3', '--save-steps', '7');
  expect([same.code, same.err]).toEqual([0, expect.not.stringContaining('other held-out examples')]);
});

it('a dry run of a resumed run refuses other data and fewer steps than were taken, as the run does', async () => {
  const sizes = ['--model', model, '--batch-size', '4', '--grad-accum', '1', '--max-steps', '2'];
  const prompts = ['--task', 'gcd:1', '--max-new-tokens', '4', '--group-size', '2', '--eval-num-prompts', '2'];
  for (const [verb, data, changed] of [
    ['reward', ['--dataset', pairs], ['--validation-split', '0.5']],
    ['preference', ['--dataset', pairs], ['--validation-split', '0.5']],
    ['policy', prompts, ['--task', 'lcm:1']],
  ] as const) {
    const first = await attune('train', verb, ...sizes, ...data, ...run, '--run-name', `dry-${verb}`);
    expect(first.code, first.err).toBe(0);
    const resumed = ['train', verb, '--resume-from', join(folder, 'rm', `dry-${verb}`)];
    for (const how of [[], ['--dry-run']]) {
      const fewer = await attune(...resumed, '--max-steps', '1', ...how);
      expect([fewer.code, fewer.err]).toEqual([2, expect.stringContaining('is at step 2, and 1 step is asked for')]);
      const other = await attune(...resumed, '--max-steps', '3', ...changed, ...how);
      expect([other.code, other.err]).toEqual([2, expect.stringMatching(/allow.changed.data/i)]);
    }
    const allowed = await attune(...resumed, '--max-steps', '3', ...changed, '--allow-changed-data', '--dry-run');
    expect(allowed.code, allowed.err).toBe(0);
  }
});

it('tells mistakes with exit code 2', async () => {
  const typo = await attune('train', 'reward', '--model', model, '--dataset', join(folder, 'none.jsonl'));
  expect([typo.code, typo.err]).toEqual([2, expect.stringContaining('none.jsonl')]);
  const untrained = await attune('score', '--checkpoint', model, pairs);
  expect([untrained.code, untrained.err]).toEqual([2, expect.stringContaining('no reward head')]);
  const neither = await attune('evaluate', 'reward', '--checkpoint', model);
  expect([neither.code, neither.err]).toEqual([2, expect.stringContaining('--dataset')]);
});

it('a dry run refuses what the run refuses, and plans an adapter as it is trained', async () => {
  const int8 = join(folder, 'int8');
  const saved = await attune(
    ...['quantize', 'policy', '--model', model, '--task', 'gcd:1', '--output-dir', int8],
    ...['--num-prompts', '2', '--max-new-tokens', '4'],
  );
  expect(saved.code).toBe(0);
  const adapter = join(folder, 'adapters', 'a', 'final');
  const trained = await attune(
    ...['train', 'preference', '--model', model, '--dataset', pairs, '--lora', '--max-steps', '1', '--run-name', 'a'],
    ...['--output-dir', join(folder, 'adapters'), '--report-to', 'none'],
  );
  expect(trained.code).toBe(0);
  const equal = join(folder, 'equal.jsonl');
  const rows = [...preferenceRows({ tasks: 'chain_sum:1', count: 8 })];
  writeFileSync(equal, rows.map((row) => `${JSON.stringify({ ...row, margin: 0 })}\n`).join(''));
  const refused: [verb: string, args: string[], because: string][] = [
    ...['sft', 'reward', 'preference'].map((verb): [string, string[], string] => [
      verb,
      ['--model', int8, '--dataset', pairs, ...(verb === 'sft' ? ['--shape', 'messages'] : [])],
      'its weights are int8 and stay as they are; train adapters on them with --lora',
    ]),
    ['policy', ['--model', int8, '--task', 'gcd:1', '--max-new-tokens', '8'], 'with --lora'],
    ['preference', ['--model', adapter, '--dataset', pairs, '--lora', '--lora-r', '8'], 'has an adapter already'],
    ['reward', ['--model', model, '--dataset', pairs, '--lora', '--lora-bias', 'all'], 'has no biases'],
    ['reward', ['--model', model, '--dataset', equal, '--margin'], 'has the margin 0'],
    ['preference', ['--model', model, '--dataset', pairs, '--dropout'], 'has no dropout of its own'],
    [
      'preference',
      ['--model', adapter, '--dataset', pairs, '--ref-model', model, '--ref-model-update-freq', '2'],
      'A moving reference of a policy with adapters',
    ],
    ['preference', ['--model', adapter, '--dataset', pairs, '--ref-quant-type', 'int8'], 'with LoRA the reference is'],
    ['reward', ['--model', model, '--dataset', pairs, '--metric-for-best-model', 'los'], 'Did you mean "eval/loss"'],
    ['reward', ['--model', model, '--dataset', pairs, '--report-to', 'wandb'], 'W&B was asked for'],
  ];
  for (const [verb, args, because] of refused)
    for (const how of [[], ['--dry-run']]) {
      const { code, err } = await attune('train', verb, ...run, ...args, '--max-steps', '1', ...how);
      expect([code, err]).toEqual([2, expect.stringContaining(because)]);
    }
  const plan = await attune('train', 'preference', '--model', model, '--dataset', pairs, '--lora', ...run, '--dry-run');
  const again = await attune('train', 'preference', '--model', adapter, '--dataset', pairs, ...run, '--dry-run');
  const lines = ({ out }: { out: string }) => out.split('\n').filter((line) => /^(Model|Memory) /.test(line));
  expect(lines(again)).toEqual(lines(plan).map((line) => line.replace(model, adapter)));
});
