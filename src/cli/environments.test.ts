/** `attune environments`, and a policy that is trained and evaluated in one from the command line. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { attune } from '../../tests/support/command-line.ts';
import { turnsModel } from '../../tests/support/turns.ts';
import { allEnvironments } from '../environments/index.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-cli-environments-'));
afterAll(() => rmSync(folder, { recursive: true }));

async function said(...args: string[]): Promise<string> {
  const { code, out, err } = await attune(...args);
  expect([code, err]).toEqual([0, '']);
  return out;
}

it('lists every environment', async () => {
  const out = await said('environments');
  for (const { name, summary } of allEnvironments) expect(out).toContain(`${name.padEnd(10)}  1-5  ${summary}`);
  expect(JSON.parse(await said('environments', 'list', '--json'))).toHaveLength(allEnvironments.length);
});

it('shows a game with who says what, and how an environment without a player begins', async () => {
  const out = await said('environments', 'show', 'calculator:2', '--seed', '3');
  expect(out).toMatch(/^calculator, difficulty 2\n {2}user: What is (\d+\*\d+)\?.*\n {2}assistant: <tool>\1<\/tool>\n/);
  expect(out).toMatch(/reward 1, solved\n$/);
  const path = join(folder, 'mine.mjs');
  writeFileSync(
    path,
    `export default { name: 'mine', start: ({ random }) => ({ messages: 'Say ' + random.int(1, 99), step: () => ({ done: true }) }) };`,
  );
  expect(await said('environments', 'show', path)).toMatch(/^mine, difficulty 1\n {2}user: Say \d+\n$/);
  const { code, err } = await attune('environments', 'demonstrate', path);
  expect([code, err]).toEqual([2, expect.stringContaining('mine has no scripted player')]);
});

it('writes games that train sft reads', async () => {
  const file = join(folder, 'games.jsonl');
  expect(await said('environments', 'demonstrate', 'search:3', '--count', '20', '--out', file)).toContain(
    '20 games in',
  );
  const rows = readFileSync(file, 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));
  expect(rows).toHaveLength(20);
  for (const { messages, success } of rows) {
    expect(messages.map(({ role }: { role: string }) => role).join(' ')).toBe(
      'user assistant user assistant user assistant',
    );
    expect(success).toBe(true);
  }
});

it('trains, looks back and evaluates', async () => {
  const model = await turnsModel(join(folder, 'model'), { hiddenSize: 16, layers: 1 });
  const where = ['--output-dir', join(folder, 'out'), '--log-dir', join(folder, 'logs'), '--report-to', 'none'];
  const sizes =
    '--batch-size 2 --grad-accum 1 --group-size 3 --max-new-tokens 250 --max-steps 2 --eval-num-prompts 2'.split(' ');
  const trained = await attune(
    ...[
      'train',
      'policy',
      '--model',
      model,
      '--env',
      'guess:1',
      '--max-turns',
      '2',
      '--save-tokens',
      '--run-name',
      'run',
    ],
    ...[...where, ...sizes],
  );
  expect([trained.code, trained.out]).toEqual([0, expect.stringMatching(/held-out: .*turns \d/)]);
  const run = join(folder, 'out', 'run');
  expect(await said('rollouts', run, '--step', '2')).toMatch(/My number is from[\s\S]*assistant: [\s\S]*user: /);
  const [row] = (await said('rollouts', run, '--step', '1', '--json')).trim().split('\n');
  expect(JSON.parse(row ?? '').episode.turns[0].role).toBe('assistant');
  expect(await said('replay', run, '--step', '2')).toContain('they agree');
  const evaluated = await attune(
    ...[
      'evaluate',
      'policy',
      '--model',
      run,
      '--env',
      'guess:1',
      '--num-prompts',
      '3',
      '--samples',
      '2',
      '--max-new-tokens',
      '120',
    ],
    ...['--reference', model, '--output-dir', join(folder, 'evaluation')],
  );
  expect([evaluated.code, evaluated.out]).toEqual([0, expect.stringContaining('pass@2')]);
  expect(JSON.parse(readFileSync(join(folder, 'evaluation', 'policy_evaluation.json'), 'utf8'))).toMatchObject({
    env: 'guess:1',
    trained_on: 0,
    summary: { prompts: 3, kl: { per_token: expect.any(Number) } },
  });
  const wrong = await attune('train', 'policy', '--model', model, '--env', 'guess', '--reward-module', './x.ts');
  expect([wrong.code, wrong.err]).toEqual([2, expect.stringContaining('the environment gives the reward')]);
});
