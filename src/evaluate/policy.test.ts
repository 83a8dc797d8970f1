import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { settledTensors } from '../../tests/support/settled-tensors.ts';
import { tinyModel } from '../../tests/support/tiny-model.ts';
import { loadModel, type Model } from '../models/index.ts';
import { rewardFunction } from '../rewards/index.ts';
import { liveTensors } from '../tensor/index.ts';
import { Tokenizer } from '../text/index.ts';
import { evaluatePolicy, winRate } from './policy.ts';
import { summaryRows, writePolicyEvaluation } from './policy-report.ts';

let folder = '';
let model: Model;
let other: Model;
let tokenizer: Tokenizer;
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'attune-evaluate-policy-'));
  model = await loadModel(await tinyModel(join(folder, 'one')));
  other = await loadModel(await tinyModel(join(folder, 'two'), { seed: 2 }));
  tokenizer = await Tokenizer.load(join(folder, 'one'));
});
afterAll(() => rmSync(folder, { recursive: true }));

const prompts = ['red', 'blue', 'yes', 'no'].map((content) => ({
  messages: [{ role: 'user' as const, content }],
  answer: '7',
}));
const scorer = rewardFunction((items) => items.map(({ response }) => response.length), { name: 'length' });

describe('evaluating a policy', () => {
  it('finds no distance to itself, and ties against itself', async () => {
    const options = {
      ...{ model, tokenizer, prompts, scorer, format: 'raw' as const, samples: 4, maxNewTokens: 6 },
      reference: model,
      opponent: { model, tokenizer },
    };
    await evaluatePolicy(options);
    const before = await settledTensors();
    const { summary, prompts: rows } = await evaluatePolicy(options);
    expect(summary.kl).toEqual({ per_response: 0, per_token: 0 });
    expect(summary.win_rate).toMatchObject({ rate: 0.5, wins: 0, ties: 4, losses: 0 });
    expect(summary).toMatchObject({ accuracy: 0, prompts: 4, reward_parts: { length: summary.reward.mean } });
    expect(Object.keys(summary.pass_at_k ?? {})).toEqual(['1', '2', '4']);
    expect(rows.map(({ sampled }) => sampled.length)).toEqual([4, 4, 4, 4]);
    for (const { greedy } of rows) expect(greedy.reward).toBe(greedy.text.length);
    expect(liveTensors()).toBe(before);
  });

  it('measures the distance to another model and writes it all down', async () => {
    const evaluation = await evaluatePolicy({
      ...{ model, tokenizer, prompts, scorer, format: 'raw', samples: 8, maxNewTokens: 6 },
      reference: other,
      opponent: { model: other, tokenizer },
    });
    expect(evaluation.summary.kl?.per_token).toBeGreaterThan(0.1);
    const heading = { model: 'runs/one', opponent: 'runs/two', reward_model: 'rm', rm_quant_type: 'int8' } as const;
    await writePolicyEvaluation(join(folder, 'out'), evaluation, { policy: 'one', opponent: 'two' }, heading);
    const read = JSON.parse(readFileSync(join(folder, 'out', 'policy_evaluation.json'), 'utf8'));
    expect(read).toMatchObject({ ...heading, summary: { prompts: 4 } });
    for (const end of ['json', 'png', 'html'])
      expect(existsSync(join(folder, 'out', `policy_evaluation.${end}`))).toBe(true);
    expect(summaryRows(evaluation.summary).map(([name]) => name)).toContain('win rate');
  });

  it('draws pass@k from 0 to 1, however low it is', async () => {
    const evaluation = await evaluatePolicy({ model, tokenizer, prompts, scorer, format: 'raw', maxNewTokens: 2 });
    const summary = { ...evaluation.summary, pass_at_k: { 1: 0.02, 2: 0.04 } };
    await writePolicyEvaluation(join(folder, 'low'), { ...evaluation, summary }, { policy: 'one' });
    const html = readFileSync(join(folder, 'low', 'policy_evaluation.html'), 'utf8');
    const picture = html.split('<figure>').find((figure) => figure.includes('>pass@k<'));
    expect(picture).toContain('>1.0</text>');
  });
});

describe('win rate', () => {
  it('counts ties as half, with Wilson’s interval', () => {
    const scores = (...values: number[]) => values.map((reward) => ({ reward }));
    const result = winRate(scores(1, 1, 0, 2, 5, 5, 5, 5, 5, 5), scores(0, 1, 1, 0, 1, 1, 1, 1, 1, 1));
    expect(result).toMatchObject({ wins: 8, ties: 1, losses: 1, rate: 0.85 });
    // (p + z²/2n ± z√(p(1−p)/n + z²/4n²)) / (1 + z²/n) by hand
    expect(result.low).toBeCloseTo(0.54115, 4);
    expect(result.high).toBeCloseTo(0.96458, 4);
  });
});
