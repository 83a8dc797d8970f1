/** `attune rollouts` and `attune replay` on a run that `attune train policy` made. */
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { attune } from '../../tests/support/command-line.ts';
import { tinyModel } from '../../tests/support/tiny-model.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-look-back-'));
const run = join(folder, 'out', 'run');
afterAll(() => rmSync(folder, { recursive: true }));

const words = (line: string) => line.split(' ');
beforeAll(async () => {
  const model = await tinyModel(join(folder, 'model'));
  writeFileSync(
    join(folder, 'length.mjs'),
    'export default (batch) => batch.map(({ response }) => ({ length: response.length, constant: 1 }));',
  );
  writeFileSync(
    join(folder, 'prompts.jsonl'),
    ['red', 'blue', 'yes'].map((prompt) => `{"prompt":"${prompt}"}\n`).join(''),
  );
  const files = ['--dataset', join(folder, 'prompts.jsonl'), '--reward-module', join(folder, 'length.mjs')];
  const where = ['--output-dir', join(folder, 'out'), '--log-dir', join(folder, 'logs'), '--run-name', 'run'];
  const sizes = words('--batch-size 2 --grad-accum 1 --group-size 4 --max-new-tokens 6 --max-steps 3 --lr 0.01');
  const rest = words(
    '--prompt-format raw --save-tokens --kl-coef 0.1 --report-to none --eval-steps 3 --eval-num-prompts 1',
  );
  const trained = await attune('train', 'policy', '--model', model, ...files, ...where, ...sizes, ...rest);
  expect([trained.code, trained.err]).toEqual([0, expect.any(String)]);
});

/** What the database itself says, for comparison. */
function select(sql: string): Record<string, unknown>[] {
  using database = new DatabaseSync(join(run, 'rollouts.db'), { readOnly: true });
  return database.prepare(sql).all();
}
async function rows(...args: string[]): Promise<Record<string, unknown>[]> {
  const { code, out, err } = await attune('rollouts', run, '--json', ...args);
  expect([code, err]).toEqual([0, '']);
  return out
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));
}
const ids = (found: Record<string, unknown>[]) => found.map(({ id }) => id);

describe('attune rollouts', () => {
  it('gives the course of the run, step by step', async () => {
    expect(await rows()).toEqual(
      select(
        'select step, count(*) count, avg(reward) mean, min(reward) min, max(reward) max from rollouts group by step',
      ),
    );
    const { out } = await attune('rollouts', run);
    expect(out.match(/^ +[123] +8 /gm)?.length).toBe(3);
    expect(out).toContain('3 steps.');
  });

  it('finds the best and the worst, of all and of some steps', async () => {
    expect(ids(await rows('--best', '3'))).toEqual(
      ids(select('select id from rollouts order by reward desc, id limit 3')),
    );
    expect(ids(await rows('--worst', '3', '--step', '2-3'))).toEqual(
      ids(select('select id from rollouts where step > 1 order by reward, id limit 3')),
    );
    const [best] = await rows('--best', '1');
    expect(best?.parts).toMatchObject({ length: String(best?.completion).length, 'length/constant': 1 });
    const { out } = await attune('rollouts', run, '--best=1');
    expect(out).toContain(`▌ prompt ${best?.promptIndex}: ${best?.prompt}`);
    expect(out).toMatch(/^step \d {2}reward \S+ {2}advantage \S+ {2}.*length \d/m);
  });

  it('follows one prompt over time, and shows one step', async () => {
    const [{ prompt_index: index } = {}] = select('select prompt_index from rollouts where step = 3 limit 1');
    expect(ids(await rows('--prompt-index', String(index)))).toEqual(
      ids(select(`select id from rollouts where prompt_index = ${index} order by step, id`)),
    );
    expect((await rows('--step', '2')).map(({ step }) => step)).toEqual(new Array(8).fill(2));
    expect((await rows('--step', '2', '--limit', '5')).length).toBe(5);
    const everything = await attune('rollouts', run, '--step', '1-3');
    expect(everything.out).toContain('The first 20; --limit N shows more.');
  });

  it('shows the responses to held-out prompts with the parts of their rewards', async () => {
    const held = await rows('--eval');
    expect(held.map(({ step }) => step)).toEqual([0, 3]);
    expect(held[0]?.parts).toMatchObject({ 'length/constant': 1 });
    expect(held[0]).not.toHaveProperty('advantage');
  });

  it('keeps to --limit in JSON too', async () => {
    expect((await rows('--limit', '1')).map(({ step }) => step)).toEqual([1]);
    expect((await rows('--eval', '--limit', '1')).length).toBe(1);
  });

  it('shows what a response would do to the terminal', async () => {
    const evil = join(folder, 'evil');
    cpSync(run, evil, { recursive: true });
    using database = new DatabaseSync(join(evil, 'rollouts.db'));
    database.exec("update rollouts set completion = 'before' || char(27) || ']52;c;eA==' || char(7)");
    database.close();
    const { out } = await attune('rollouts', evil, '--best', '1');
    expect(out).toContain('before␛]52;c;eA==␇');
    expect(out).not.toMatch(/(?!\n)\p{Cc}/u);
  });

  it('takes a database as well as a folder', async () => {
    const { code, out } = await attune('rollouts', join(run, 'rollouts.db'), '--best', '1', '--json');
    expect([code, JSON.parse(out).id]).toEqual([0, (await rows('--best', '1'))[0]?.id]);
  });

  it('says what is wrong', async () => {
    const other = join(folder, 'other');
    cpSync(run, other, { recursive: true });
    writeFileSync(join(other, 'rollouts.db'), 'not a database, but long enough to be taken for one');
    using empty = new DatabaseSync(join(folder, 'empty.db'));
    empty.exec('create table cats(name)');
    const faults: [RegExp, ...string[]][] = [
      [/There is no run folder .*nowhere\./, join(folder, 'out', 'nowhere')],
      [/out is not a run folder: it has neither/, join(folder, 'out')],
      [/Did you mean "run"/, join(folder, 'out', 'rnu')],
      [/rollouts\.db is no rollout database that can be read: file is not a database/, other],
      [/empty\.db is no rollout database that can be read: no such table/, join(folder, 'empty.db')],
      [/There are no rollouts at step 99; the database has steps 1 to 3/, run, '--step', '99'],
      [/no responses to held-out prompts at step 2; the database has steps 0 to 3/, run, '--eval', '--step', '2'],
      [/There are no rollouts of prompt 77/, run, '--prompt-index', '77'],
      [/--step: takes a step or a range such as 90-100/, run, '--step', 'first'],
      [/--step 3-1: the range ends before it begins/, run, '--step', '3-1'],
      [/--best: expected a number more than 0, got 0/, run, '--best', '0'],
      [/--limit: expected a number, got "x"/, run, '--limit', 'x'],
      [/--best or for --worst, not for both/, run, '--best', '1', '--worst', '1'],
      [/unknown option '--bset'/, run, '--bset', '1'],
    ];
    for (const [message, ...args] of faults) {
      const { code, out, err } = await attune('rollouts', ...args);
      expect([code, out, err]).toEqual([2, '', expect.stringMatching(message)]);
    }
    expect((await attune('rollouts')).code).toBe(2);
    rmSync(join(other, 'rollouts.db'));
    const none = await attune('rollouts', other);
    expect([none.code, none.err]).toEqual([2, expect.stringContaining('There is no rollout database')]);
  });
});

describe('attune replay', () => {
  it('recomputes every step from the database alone', async () => {
    for (const step of ['1', '2', '3']) {
      const { code, out } = await attune('replay', run, '--step', step);
      expect([code, out]).toEqual([0, expect.stringContaining('they agree.')]);
      expect(out).toMatch(/^grpo, step \d, 8 rollouts$/m);
      for (const term of ['policy_loss', 'kl']) expect(out).toMatch(new RegExp(`^${term} +-?[\\d.]+ +-?[\\d.]+$`, 'm'));
    }
    const last = await attune('replay', run, '--json');
    expect(JSON.parse(last.out)).toMatchObject({ step: 3, agrees: true, algorithm: 'grpo' });
  });

  it.each([
    ['a reward', 'update rollouts set reward = reward + 1 where id = 11'],
    ['an advantage', 'update rollouts set advantage = -advantage where step = 2'],
    ['a missing response', 'delete from rollouts where id = 12'],
    [
      'log-probs of the reference',
      'update rollout_tokens set ref_logprobs = zeroblob(length(ref_logprobs)) where rollout_id = 9',
    ],
  ])('notices %s that was tampered with', async (_, sql) => {
    const copy = join(folder, 'tampered');
    cpSync(run, copy, { recursive: true });
    try {
      using database = new DatabaseSync(join(copy, 'rollouts.db'));
      database.exec(sql);
      database.close();
      const { code, out } = await attune('replay', copy, '--step', '2');
      expect([code, out]).toEqual([1, expect.stringContaining('THEY DO NOT AGREE')]);
      expect((await attune('replay', copy, '--step', '1')).code).toBe(0);
    } finally {
      rmSync(copy, { recursive: true });
    }
  });

  it('says what is wrong', async () => {
    const bare = join(folder, 'bare');
    cpSync(run, bare, { recursive: true });
    using database = new DatabaseSync(join(bare, 'rollouts.db'));
    database.exec('delete from rollout_tokens');
    const faults: [string, ...string[]][] = [
      ['There is no run folder', join(folder, 'nowhere')],
      ['has no metrics of step 9; it has steps 1 to 3', run, '--step', '9'],
      ['--step: expected a number, got "two"', run, '--step', 'two'],
      ['This run stored no tokens', bare],
      [`${join(folder, 'rm')} is a run of attune train reward: only policy runs have rollouts`, join(folder, 'rm')],
    ];
    mkdirSync(join(folder, 'rm'));
    writeFileSync(join(folder, 'rm', 'run.json'), JSON.stringify({ command: 'train reward' }));
    for (const [message, ...args] of faults) {
      const { code, out, err } = await attune('replay', ...args);
      expect([code, out, err]).toEqual([2, '', expect.stringContaining(message)]);
    }
  });
});
