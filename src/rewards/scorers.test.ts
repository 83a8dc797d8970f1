import { spawnSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import { respond, task } from '../tasks/index.ts';
import { rewardFunction } from './program/function.ts';
import { aggregateSteps, scoreOf } from './reward-model.ts';
import { score } from './score.ts';
import { scoreParts } from './scorer.ts';
import { sumOfRewards } from './sum.ts';
import { taskVerifier } from './verifier.ts';

const items = ['a', 'bbb', 'cc'].map((response) => ({ prompt: 'say it', response }));

describe('a function as a reward', () => {
  it('gives numbers, lists of parts, or parts of each sample', async () => {
    const plain = rewardFunction((batch) => batch.map(({ response }) => response.length));
    expect(await plain.score(items)).toEqual([1, 3, 2]);
    const lists = rewardFunction(async (batch) => ({
      length: batch.map(({ response }) => response.length),
      one: [1, 1, 1],
    }));
    expect(await scoreParts(lists, items)).toEqual({ total: [2, 4, 3], parts: { length: [1, 3, 2], one: [1, 1, 1] } });
    const each = rewardFunction((batch) => batch.map(({ response }) => ({ x: response.length, y: -1 })));
    expect(await scoreParts(each, items)).toEqual({ total: [0, 2, 1], parts: { x: [1, 3, 2], y: [-1, -1, -1] } });
  });

  it('is asked by `score`, which refuses names that it does not know', async () => {
    const model = rewardFunction((batch) => batch.map(({ response }) => response.length));
    expect(await score({ model, prompt: 'say it', response: 'abc' })).toBe(3);
    const misspelt = { model, promt: 'say it', prompt: 'say it', response: 'abc' };
    await expect(score(misspelt)).rejects.toThrow(/score does not know "promt"\. Did you mean "prompt"\?/);
  });

  it('names the sample that an exception comes from', async () => {
    const failing = rewardFunction(
      (batch) =>
        batch.map(({ response }) => {
          if (response === 'bbb') throw new Error('too many b');
          return 0;
        }),
      { name: 'mine' },
    );
    await expect(failing.score(items)).rejects.toThrow(/"mine" failed on sample 1 of 3 .*"bbb".*too many b/);
  });

  it('is stopped at its time limit', async () => {
    const endless = rewardFunction(() => new Promise<number[]>(() => {}), { timeLimitMs: 30 });
    await expect(endless.score(items)).rejects.toThrow(/longer than 0.03 s/);
  });

  it('is stopped too where nothing else keeps the process alive', () => {
    const module = JSON.stringify(new URL('./program/function.ts', import.meta.url).href);
    const program = `const { rewardFunction } = await import(${module});
      const scorer = rewardFunction(() => new Promise(() => {}), { timeLimitMs: 20 });
      await scorer.score([{ prompt: 'p', response: 'r' }]).catch((error) => console.log(error.message));`;
    const { stdout, status } = spawnSync(process.execPath, ['--input-type=module', '-e', program], {
      encoding: 'utf8',
    });
    expect([status, stdout]).toEqual([0, 'The reward "function" took longer than 0.02 s for a batch.\n']);
  });

  it('cannot change what it is given', async () => {
    const row = { prompt: [{ role: 'user' as const, content: 'say it' }], response: 'a', fields: { answer: '7' } };
    const cheat = rewardFunction((batch) =>
      batch.map((item) => {
        (item.fields as { answer: string }).answer = item.response;
        return 1;
      }),
    );
    await expect(cheat.score([row])).rejects.toThrow(/read only property 'answer'/);
    expect(row.fields.answer).toBe('7');
  });

  it('must give one finite number for each sample', async () => {
    await expect(rewardFunction(() => [1, 2]).score(items)).rejects.toThrow(/gave 2 numbers for 3 samples/);
    await expect(rewardFunction(() => [1, Number.NaN, 2]).score(items)).rejects.toThrow(/NaN for sample 1/);
    for (const huge of [1e300, -2e19])
      await expect(rewardFunction(() => [1, 2, huge]).score(items)).rejects.toThrow(/for sample 2: too large/);
    expect(await rewardFunction(() => [1, 2, -1e19]).score(items)).toEqual([1, 2, -1e19]);
  });
});

describe('a verifier', () => {
  const examples = [task('chain_sum').generate(3, 1), task('gcd').generate(4, 1)];
  const responses = examples.map((example) => respond(task(example.task).solution(example)));
  const right = examples.map((example, i) => ({ prompt: example.prompt, response: responses[i] as string, example }));

  it('judges items of several tasks, and their form', async () => {
    const wrong = { ...(right[0] as (typeof right)[0]), response: '<answer>nothing</answer>' };
    const scored = await scoreParts(taskVerifier({ format: 0.2 }), [...right, wrong]);
    expect(scored.parts.answer).toEqual([1, 1, 0]);
    // two of four tags, once each: 0.75 · 2/4
    expect(scored.parts.format).toEqual([1, 1, 0.375]);
    expect(scored.total).toEqual([1.2, 1.2, 0.2 * 0.375]);
  });

  it('says when an item belongs to no task', async () => {
    await expect(taskVerifier().score(items)).rejects.toThrow(/Sample 0 belongs to no task/);
  });
});

it('adds rewards up by weight and reports each part', async () => {
  const length = rewardFunction((batch) => batch.map(({ response }) => response.length), { name: 'length' });
  const parts = rewardFunction(() => ({ x: [1, 1, 1], y: [0, 1, 2] }), { name: 'parts' });
  const sum = sumOfRewards([{ scorer: length, weight: 2 }, { scorer: parts }]);
  expect(await scoreParts(sum, items)).toEqual({
    total: [3, 8, 7],
    parts: { length: [1, 3, 2], 'parts/x': [1, 1, 1], 'parts/y': [0, 1, 2] },
  });
  expect(() => sumOfRewards([{ scorer: length }, { scorer: length }])).toThrow(/Two rewards are called "length"/);
});

it('gives a part the weight that names it, not its share of the scorer', async () => {
  const parts = rewardFunction(() => ({ x: [1, 1, 1], y: [0, 1, 2] }), { name: 'parts' });
  const weighted = (partWeights: Record<string, number>) =>
    sumOfRewards([{ scorer: parts, weight: 2 }], { partWeights }).score(items);
  // 2 x + 0.3 y, not 2 (x + 0.3 y)
  expect(await weighted({ y: 0.3 })).toEqual([2, 2.3, 2.6]);
  expect(await weighted({ 'parts/x': 0 })).toEqual([0, 2, 4]);
  await expect(weighted({ z: 1 })).rejects.toThrow(/"z", but no reward has such a part.*parts\/x, parts\/y/);
});

it('takes scores from outputs: σ at the last token, steps by minimum, product or last', () => {
  expect(scoreOf('preference', Float32Array.of(-2))).toBe(-2);
  expect(scoreOf('outcome', Float32Array.of(Math.log(3)))).toBeCloseTo(0.75, 6);
  const logits = Float32Array.of(0, 0, Math.log(2), 0, 0, Math.log(8));
  // P(+1): 2/4 and 8/10
  expect(scoreOf('process', logits)).toBeCloseTo(0.5, 6);
  expect(scoreOf('process', logits, 'product')).toBeCloseTo(0.4, 6);
  expect(scoreOf('process', logits, 'last')).toBeCloseTo(0.8, 6);
  expect(aggregateSteps([], 'min')).toBe(1);
});

it('refuses misspelt options: a weight would be 1', () => {
  const scorer = rewardFunction(() => [1, 1, 1], { name: 'one' });
  expect(() => sumOfRewards([{ scorer, wieght: 3 } as never])).toThrow(/"wieght". Did you mean "weight"/);
  expect(() => sumOfRewards([{ scorer }], { partWeight: {} } as never)).toThrow(/Did you mean "partWeights"/);
  expect(() => taskVerifier({ anwser: 2 } as never)).toThrow(/Did you mean "answer"/);
  expect(() => taskVerifier({ format: Number.NaN })).toThrow(/format NaN: expected a number/);
});
