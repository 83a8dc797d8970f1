/** Rollouts of a real run that this test trains; every number is checked against the database by plain SQL. */
import { copyFileSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { whatTrainingOffers } from '../../src/cli/studio.ts';
import type { RolloutDetail, RolloutsAnswer, StepsAnswer, WhatIfAnswer } from '../../src/studio/api.ts';
import { matchOf } from '../../src/studio/rollouts/query.ts';
import { RolloutIndex } from '../../src/studio/rollouts/rollout-index.ts';
import { type Client, openStudio, removeFolder, temporaryFolder } from '../../src/studio/studio.test-support.ts';
import { trainPolicy } from '../../src/trainers/policy/policy.ts';
import { replayStep } from '../../src/trainers/policy/replay.ts';

const tiny = join(import.meta.dirname, '../../models/tiny');
const root = temporaryFolder();
let client: Client;
let base: string;
let database: DatabaseSync;
let folder: string;

beforeAll(async () => {
  const run = await trainPolicy({
    ...{ model: tiny, task: 'number_sorting:1,spell_backward:1', algorithm: 'grpo', lr: 2e-4, maxSteps: 3 },
    ...{ batchSize: 2, gradAccum: 1, groupSize: 4, maxNewTokens: 32, evalNumPrompts: 4, evalSteps: 2, saveSteps: 1 },
    ...{ saveTokens: true, outputDir: root, logDir: join(root, 'logs'), runName: 'grpo', seed: 5 },
  });
  folder = run.folder;
  database = new DatabaseSync(join(folder, 'rollouts.db'), { readOnly: true });
  client = await openStudio({ root, above: whatTrainingOffers() });
  base = `/api/runs/${(await client.get('/api/runs')).json[0].id}`;
});
afterAll(async () => {
  await client.studio.close();
  database.close();
  removeFolder(root);
});

const ask = async (query: string) => (await client.get(`${base}/rollouts?${query}`)).json as RolloutsAnswer;
const ids = (sql: string, ...values: (string | number)[]) =>
  database
    .prepare(sql)
    .all(...values)
    .map(({ id }) => id);

describe('the table', () => {
  it('pages, sorts and filters as plain SQL does', async () => {
    const all = await ask('limit=500');
    expect(all).toMatchObject({
      total: 24,
      lengthUnit: 'tokens',
      indexed: 1,
      has: { correct: true, ending: true, tokens: true, kl: true },
    });
    expect(all.tasks).toEqual(['number_sorting', 'spell_backward']);
    expect(all.rows.map(({ id }) => id)).toEqual(ids('select id from rollouts order by id'));
    const page = await ask('offset=5&limit=4&sort=reward&dir=desc');
    expect(page.rows.map(({ id }) => id)).toEqual(
      ids('select id from rollouts order by reward desc, id desc limit 4 offset 5'),
    );
    const some = await ask('minReward=0.3&maxReward=0.9&step=2');
    expect(some.rows.map(({ id }) => id)).toEqual(
      ids('select id from rollouts where reward between 0.3 and 0.9 and step = 2'),
    );
    expect((await ask('from=2&to=3')).total).toBe(16);
    const right = await ask('correct=1');
    expect(right.rows.map(({ id }) => id)).toEqual(
      ids("select rollout_id as id from reward_parts where name = 'correct' and value = 1 order by 1"),
    );
    const long = await ask('minLength=8&sort=length');
    expect(long.rows.map(({ id }) => id)).toEqual(
      ids(
        'select rollout_id as id from rollout_tokens where length(completion_ids) / 4 >= 8 order by length(completion_ids), 1',
      ),
    );
    const byAdvantage = await ask('sort=advantage&dir=desc&limit=7');
    expect(byAdvantage.rows.map(({ id }) => id)).toEqual(
      ids('select id from rollouts order by advantage desc, id desc limit 7'),
    );
    expect((await ask('ending=cut')).total + (await ask('ending=ended')).total).toBe(24);
    expect((await ask('task=spell_backward')).rows.every(({ prompt }) => prompt.startsWith('Spell'))).toBe(true);
  });

  it('sorts by the KL of a response, the mean over its tokens', async () => {
    const stored = database.prepare('select rollout_id as id, logprobs, ref_logprobs from rollout_tokens').all();
    const floats = (bytes: unknown) => Array.from(new Float32Array((bytes as Uint8Array).slice().buffer));
    const kls = stored.map(({ id, logprobs, ref_logprobs: references }) => {
      const other = floats(references);
      const terms = floats(logprobs).map((own, t) => Math.exp((other[t] ?? 0) - own) - 1 - ((other[t] ?? 0) - own));
      return { id, kl: terms.reduce((sum, term) => sum + term, 0) / terms.length };
    });
    for (const dir of ['asc', 'desc'] as const) {
      const { rows } = await ask(`sort=kl&dir=${dir}&limit=500`);
      expect(rows.length).toBe(24);
      for (const { id, kl } of rows) expect(kl).toBeCloseTo(kls.find((each) => each.id === id)?.kl ?? -1, 6);
      const sign = dir === 'asc' ? 1 : -1;
      for (const [i, { kl = 0 }] of rows.slice(1).entries())
        expect(sign * kl).toBeGreaterThanOrEqual(sign * (rows[i]?.kl ?? 0));
    }
    expect((await ask('sort=kl&limit=1&eval=1')).rows[0]).not.toHaveProperty('kl');
  });

  it('searches the text, whatever signs it has', async () => {
    const spell = await ask('q=spell');
    expect(spell.total).toBe(ids("select id from rollouts where prompt like '%spell%'").length);
    expect((await ask('q=%22Answer+with+one+word%22')).total).toBe(spell.total);
    expect((await ask('q=spe*')).total).toBe(spell.total);
    expect((await ask('q=spell+nowhere')).total).toBe(0);
    for (const text of ['\0a', '"a\0', '"', "' or 1=1 --", 'a AND OR NOT (', '<answer>', '*', 'prompt:x'])
      expect((await client.get(`${base}/rollouts?q=${encodeURIComponent(text)}`)).status).toBe(200);
    expect(matchOf('sort "in order" num* ()')).toBe('"sort" "in order" "num"*');
  });

  it('has held-out responses too', async () => {
    const held = await ask('eval=1');
    expect(held.rows.map(({ id }) => id)).toEqual(ids('select id from eval_rollouts order by id'));
    expect(held.rows[0]).not.toHaveProperty('advantage');
  });

  it('sums up the steps, and shows one prompt over time', async () => {
    const { steps } = (await client.get(`${base}/steps`)).json as StepsAnswer;
    const plain = database.prepare('select step, count(*) n, avg(reward) mean from rollouts group by step').all();
    expect(steps.map(({ step, count, meanReward }) => [step, count, meanReward])).toEqual(
      plain.map(({ step, n, mean }) => [step, n, mean]),
    );
    expect(steps.every(({ accuracy }) => accuracy !== undefined)).toBe(true);
    const { json } = await client.get(`${base}/prompts/0?eval=1`);
    expect(json.rows.map(({ id }: { id: number }) => id)).toEqual(
      ids('select id from eval_rollouts where prompt_index = 0 order by step, id'),
    );
    expect(json.prompt.length).toBeGreaterThan(10);
    for (const name of ['-1', 'x', '1.5', '1e3'])
      expect((await client.get(`${base}/prompts/${name}`)).status).toBe(404);
  });
});

describe('one rollout', () => {
  it('shows the stored numbers of every token', async () => {
    const detail = (await client.get(`${base}/rollouts/9`)).json as RolloutDetail;
    const row = database.prepare('select * from rollout_tokens where rollout_id = 9').get() as Record<
      string,
      Uint8Array
    >;
    const floats = (name: string) => Array.from(new Float32Array((row[name] as Uint8Array).slice().buffer));
    const tokens = detail.tokens ?? [];
    expect(tokens.map(({ logprob }) => logprob)).toEqual(floats('logprobs'));
    expect(tokens.map(({ refLogprob }) => refLogprob)).toEqual(floats('ref_logprobs'));
    expect(tokens.map(({ advantage }) => advantage)).toEqual(floats('advantages'));
    expect(tokens.map(({ text }) => text).join('')).toContain(detail.completionText);
    tokens.forEach(({ logprob, refLogprob = 0, kl }) => {
      expect(kl).toBeCloseTo(Math.exp(refLogprob - logprob) - 1 - (refLogprob - logprob), 6);
    });
    expect(detail.group).toEqual([9, 10, 11, 12]);
    expect(detail.peers.map(({ id, reward }) => [id, reward])).toEqual(
      database
        .prepare('select id, reward from rollouts where id between 9 and 12 order by id')
        .all()
        .map(({ id, reward }) => [id, reward]),
    );
    expect([detail.previous, detail.next]).toEqual([8, 10]);
    expect(tokens[0]).not.toHaveProperty('ratio');
    expect((await client.get(`${base}/rollouts/999`)).status).toBe(404);
  });

  it('has the turns of an episode, with who said what', async () => {
    const path = join(folder, 'rollouts.db');
    using writing = new DatabaseSync(path);
    writing.exec(`insert into rollout_episodes values (10, 'turns', 1);
      insert into rollout_turns values (10, 0, 'assistant', '50', 3, 0.5), (10, 1, 'user', '<b>Higher.</b>', null, null)`);
    expect((await client.get(`${base}/rollouts/10`)).json).toMatchObject({
      episodeEnd: 'turns',
      turns: [
        { role: 'assistant', content: '50', tokens: 3, reward: 0.5 },
        { role: 'user', content: '<b>Higher.</b>' },
      ],
    });
    expect((await client.get(`${base}/rollouts/9`)).json).not.toHaveProperty('turns');
    writing.exec('delete from rollout_episodes; delete from rollout_turns');
  });

  it('scores it under a checkpoint: ratio 1 under the weights that sampled, not under later ones', async () => {
    const under = async (checkpoint: string) =>
      ((await client.get(`${base}/rollouts/9?checkpoint=${checkpoint}`)).json as RolloutDetail).tokens ?? [];
    // Rollout 9 is of step 2, sampled with the weights that step 1 left.
    const same = await under('step-1');
    for (const { ratio = 0, entropy = -1 } of same) {
      expect(ratio).toBeCloseTo(1, 3);
      expect(entropy).toBeGreaterThanOrEqual(0);
    }
    const later = await under('step-3');
    expect(Math.max(...later.map(({ ratio = 1 }) => Math.abs(ratio - 1)))).toBeGreaterThan(1e-3);
    expect((await client.get(`${base}/rollouts/9?checkpoint=../../x`)).status).toBe(404);
    const atOnce = await Promise.all([under('step-1'), under('step-3'), under('step-1')]);
    expect(atOnce).toEqual([same, later, same]);
  });
});

describe('what if', () => {
  const whatIf = async (body: object) => (await client.post(`${base}/whatif`, body)).json as WhatIfAnswer;

  it('leaves everything as it was where nothing is changed', async () => {
    const answer = await whatIf({ step: 2 });
    const replayed = replayStep(folder, 2);
    expect(answer.agrees).toBe(true);
    expect(answer.recorded.losses).toEqual(answer.changed.losses);
    for (const { name, replayed: value } of replayed.losses) expect(answer.recorded.losses[name]).toBeCloseTo(value, 6);
    for (const { recorded, changed, ratio } of answer.rollouts) {
      expect(changed).toBeCloseTo(recorded, 5);
      expect(ratio.every((value) => value === 1)).toBe(true);
    }
  });

  it('takes another algorithm: Dr. GRPO does not divide by the spread of a group', async () => {
    const answer = await whatIf({ step: 2, algorithm: 'drgrpo' });
    const rewards = answer.rollouts.map(({ reward }) => reward);
    for (let group = 0; group < 2; group++) {
      const own = rewards.slice(4 * group, 4 * group + 4);
      const mean = own.reduce((sum, value) => sum + value, 0) / 4;
      for (const [i, reward] of own.entries())
        expect(answer.rollouts[4 * group + i]?.changed).toBeCloseTo(reward - mean, 5);
    }
    expect(answer.algorithms).toContain('dapo');
  });

  it('clips by the options that were asked for, under a later checkpoint', async () => {
    const answer = await whatIf({ step: 2, checkpoint: 'step-3', options: { clip_low: 0, clip_high: 0 } });
    let [clipped, tokens] = [0, 0];
    for (const each of answer.rollouts) {
      each.ratio.forEach((ratio, t) => {
        const advantage = each.advantages[t] as number;
        const wanted = (ratio > 1 && advantage > 0) || (ratio < 1 && advantage < 0);
        expect(each.clipped[t]).toBe(Number(wanted));
        clipped += Number(wanted);
        tokens++;
      });
    }
    expect(clipped).toBeGreaterThan(0);
    expect(answer.changed.shareClipped).toBeCloseTo(clipped / tokens, 6);
    expect(answer.recorded.shareClipped).toBeLessThanOrEqual(answer.changed.shareClipped);
  });

  it('says what cannot be asked for', async () => {
    const refused = async (body: object) => (await client.post(`${base}/whatif`, body)).json.error.message as string;
    expect(await refused({ step: 2, algorithm: 'ppo' })).toContain("critic's values");
    expect(await refused({ step: 2, options: { lr: 1 } })).toContain('no option of an algorithm');
    expect(await refused({ step: 99 })).toContain('step 99');
    expect(await refused({ step: 2, checkpoint: 'step-99' })).toContain('no checkpoint');
  });
});

describe('the index', () => {
  it('never writes to the database, follows it as it grows, and is made again after a resume', async () => {
    const place = join(root, 'copies');
    mkdirSync(place);
    const path = join(place, 'rollouts.db');
    copyFileSync(join(folder, 'rollouts.db'), path);
    using index = new RolloutIndex(path, `${root}-cache`);
    await index.whole();
    const total = () => index.database.prepare('select count(*) as n from rows').get()?.n;
    expect(total()).toBe(24);
    expect(() => index.database.exec('delete from source.rollouts')).toThrow(/readonly/);
    using writer = new DatabaseSync(path);
    const add = (step: number, text: string) =>
      writer
        .prepare(
          'insert into rollouts(step, epoch, prompt_index, rollout_index, prompt, completion, reward, advantage) values (?, 0, 0, 0, ?, ?, 1, 0)',
        )
        .run(step, 'p', text);
    add(4, 'late');
    await index.whole();
    expect(total()).toBe(25);
    writer.exec('delete from rollouts where step > 2');
    for (let i = 0; i < 20; i++) add(3, `other ${i}`);
    await index.whole();
    expect(total()).toBe(36);
    const found = index.database.prepare("select rowid as id from words where words match 'late'").all();
    expect(found).toEqual([]);
  });
});
