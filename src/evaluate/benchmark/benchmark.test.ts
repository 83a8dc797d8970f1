import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { attune } from '../../../tests/support/command-line.ts';
import { settledTensors } from '../../../tests/support/settled-tensors.ts';
import { tinyModel } from '../../../tests/support/tiny-model.ts';
import { LanguageModel, loadModel, packSequences } from '../../models/index.ts';
import { task } from '../../tasks/index.ts';
import { liveTensors, noGrad, scope } from '../../tensor/index.ts';
import { Tokenizer } from '../../text/index.ts';
import type { Player } from './asking.ts';
import { evaluateBenchmark } from './benchmark.ts';
import { shotsFor } from './few-shot.ts';
import { describeBenchmark } from './report.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-benchmark-'));
const tiny = join(import.meta.dirname, '../../../models/tiny');
let small: Player;
let other: Player;

beforeAll(async () => {
  const load = async (name: string, seed: number) => {
    const at = await tinyModel(join(folder, name), { seed });
    return { model: await loadModel(at), tokenizer: await Tokenizer.load(at) };
  };
  small = await load('small', 1);
  other = await load('other', 2);
});
afterAll(() => {
  small.model.dispose();
  other.model.dispose();
  rmSync(folder, { recursive: true });
});

const rows = Array.from({ length: 40 }, (_, i) => ({
  ...{ question: `What is ${i} + ${i % 7}?`, choices: [`${i}`, `the answer is ${i + (i % 7)}`, 'no', 'yes, good'] },
  ...{ answer: i % 4, subject: i % 2 === 0 ? 'even' : 'odd' },
}));

/** Σ log π of the tokens from `from` on, from the softmax over the logits of a single sequence. */
function logprobOf({ model }: Player, ids: readonly number[], from: number): number {
  const { vocabSize } = model.decoder.spec;
  const logits = scope(() => noGrad(() => model.decoder.logits(model.decoder.forward(packSequences([ids]))).numbers()));
  let sum = 0;
  for (let at = from; at < ids.length; at++) {
    const row = logits.slice((at - 1) * vocabSize, at * vocabSize);
    const top = Math.max(...row);
    sum +=
      (row[ids[at] as number] as number) - top - Math.log(row.reduce((total, each) => total + Math.exp(each - top), 0));
  }
  return sum;
}

describe('choices', () => {
  it('have the log-probs of an independent softmax, and the accuracies that follow from them', async () => {
    const results = await evaluateBenchmark({ model: small, suite: rows, format: 'choice', shots: 2 });
    const right = { acc: 0, acc_norm: 0, acc_bytes: 0 };
    for (const [i, outcome] of (results.outcomes[0] ?? []).entries()) {
      const { prompt, logprobs } = outcome.sample as { prompt: string; logprobs: number[] };
      const { question, choices, answer } = rows[i] as (typeof rows)[number];
      expect(prompt.split('\n\n')).toHaveLength(3);
      expect(prompt.endsWith(`\n\nQuestion: ${question}\nAnswer:`)).toBe(true);
      expect(prompt.split(`Question: ${question}\n`)).toHaveLength(2);
      const own = choices.map((choice) => {
        const whole = Array.from(small.tokenizer.encode(`${prompt} ${choice}`));
        return logprobOf(small, whole, small.tokenizer.encode(prompt).length);
      });
      for (const [c, logprob] of own.entries()) expect(logprobs[c]).toBeCloseTo(logprob, 3);
      const argmax = (values: number[]) =>
        values.reduce((best, value, c) => (value > (values[best] as number) ? c : best), 0);
      right.acc += Number(argmax(own) === answer);
      right.acc_norm += Number(argmax(own.map((lp, c) => lp / (choices[c] as string).length)) === answer);
    }
    const { metrics, by_subject: subjects } = results.models[0] as (typeof results.models)[number];
    expect(metrics.acc?.value).toBeCloseTo(right.acc / rows.length, 12);
    expect(metrics.acc_norm?.value).toBeCloseTo(right.acc_norm / rows.length, 12);
    expect(metrics.acc_bytes?.value).toBe(metrics.acc_norm?.value);
    expect(metrics.acc).toMatchObject({ by: 'wilson', questions: 40 });
    expect(Object.keys(subjects)).toEqual(['even', 'odd']);
    const halves = (subjects.even?.acc?.value ?? 0) + (subjects.odd?.acc?.value ?? 0);
    expect(halves / 2).toBeCloseTo(metrics.acc?.value ?? 0, 12);
    expect(results).toMatchObject({
      mode: 'choice',
      prompt: 'raw',
      shots: 2,
      shots_from: expect.stringContaining('the set itself'),
    });
  });

  it('are compared between two models by the questions that only one gets right', async () => {
    const results = await evaluateBenchmark({ model: small, against: other, suite: rows, format: 'choice' });
    const [first = [], second = []] = results.outcomes;
    const alone = (own: typeof first, others: typeof first) =>
      own.filter(({ scores }, i) => scores.acc === 1 && others[i]?.scores.acc === 0).length;
    expect(results.comparison?.acc?.mcnemar).toMatchObject({
      only_first: alone(first, second),
      only_second: alone(second, first),
    });
    const [a, b] = results.models.map(({ metrics }) => metrics.acc?.value ?? 0) as [number, number];
    expect(results.comparison?.acc?.difference).toBeCloseTo(a - b, 12);
    expect(describeBenchmark(results)).toMatch(/McNemar p/);
  });

  it('can be asked by their letters, and in a chat', async () => {
    const before = await settledTensors();
    const letters = await evaluateBenchmark({
      model: small,
      suite: rows.slice(0, 4),
      choices: 'letters',
      format: 'choice',
    });
    expect(liveTensors()).toBe(before);
    expect(letters.outcomes[0]?.[1]?.sample).toMatchObject({
      prompt: 'What is 1 + 1?\nA. 1\nB. the answer is 2\nC. no\nD. yes, good\nAnswer:',
      choices: ['A', 'B', 'C', 'D'],
    });
    const chat = await evaluateBenchmark({ model: small, suite: rows.slice(0, 4), format: 'choice', prompt: 'chat' });
    const sample = chat.outcomes[0]?.[0]?.sample as { prompt: string; logprobs: number[] };
    const asked = [{ role: 'user' as const, content: 'Question: What is 0 + 0?\nAnswer:' }];
    expect(sample.prompt).toBe(small.tokenizer.renderChat(asked, { addGenerationPrompt: true }));
    // No space: the template ends where the answer begins, except for white space, which counts as part of the answer.
    const context = Array.from(small.tokenizer.encode(sample.prompt.trimEnd()));
    const whole = Array.from(small.tokenizer.encode(`${sample.prompt}no`));
    expect(sample.logprobs[2]).toBeCloseTo(logprobOf(small, whole, context.length), 3);
  });
});

describe('written answers', () => {
  const problems = Array.from({ length: 12 }, (_, i) => task('spell_backward').generate(100 + i, 1));
  const asked = problems.map(({ prompt, answer }) => ({ question: prompt, answer }));

  it('are judged strictly and leniently, greedily and by samples', async () => {
    using model = await LanguageModel.open(tiny, { dtype: 'float32' });
    const results = await evaluateBenchmark({
      ...{ model, suite: asked, instruction: '', k: 4, maxNewTokens: 48, temperature: 1.2 },
    });
    expect(results).toMatchObject({ format: 'answer', mode: 'generate', prompt: 'chat', shots: 0 });
    const { metrics } = results.models[0] as (typeof results.models)[number];
    let greedy = 0;
    let passes = 0;
    for (const [i, { sample, scores }] of (results.outcomes[0] ?? []).entries()) {
      const messages = [{ role: 'user' as const, content: asked[i]?.question as string }];
      const alone = await model.generate({ messages, temperature: 0, maxNewTokens: 48 });
      const shown = sample as { greedy: { response: string }; sampled: { response: string }[] };
      expect(shown.greedy.response).toBe(alone.text);
      expect(shown.sampled).toHaveLength(4);
      const isRight = (text: string) => (/<answer>([^<]*)<\/answer>/.exec(text)?.[1] ?? '') === asked[i]?.answer;
      greedy += Number(isRight(alone.text));
      passes += Number(shown.sampled.some(({ response }) => isRight(response)));
      expect(scores['strict_pass@4']).toBe(Number(shown.sampled.some(({ response }) => isRight(response))));
    }
    expect(greedy).toBeGreaterThan(0);
    expect(metrics.strict?.value).toBeCloseTo(greedy / 12, 12);
    expect(metrics['strict_pass@4']?.value).toBeCloseTo(passes / 12, 12);
    expect(metrics['strict_pass@1']?.by).toBe('bootstrap');
    expect(metrics.lenient?.value).toBeGreaterThanOrEqual(metrics.strict?.value ?? 1);
    expect(Object.keys(metrics)).toContain('lenient_maj@4');
    // The results do not depend on the other questions in the batch.
    const again = await evaluateBenchmark({ model, suite: asked.slice(0, 3), instruction: '', maxNewTokens: 48 });
    const text = (results: { outcomes: readonly (readonly { sample: Record<string, unknown> }[])[] }) =>
      (results.outcomes[0] ?? []).slice(0, 3).map(({ sample }) => (sample.greedy as { response: string }).response);
    expect(text(again)).toEqual(text(results));
  });

  it('give up examples that a small model has no room for, and count what does not fit as wrong', async () => {
    const long = Array.from({ length: 6 }, (_, i) => ({
      question: `${'red blue '.repeat(12 + i)}?`,
      answer: `#### ${i}`,
    }));
    long.push({ question: 'good bad '.repeat(400), answer: '#### 1' });
    const results = await evaluateBenchmark({ model: small, suite: long, shots: 5, prompt: 'raw', maxNewTokens: 4 });
    const [figures] = results.models;
    expect(figures?.too_long).toBe(1);
    expect(figures?.shortened_prompts).toBeGreaterThan(0);
    expect(results.outcomes[0]?.[6]?.scores).toMatchObject({ strict: 0, lenient: 0 });
    expect(results.outcomes[0]?.[6]?.sample.prompt).toBeNull();
  });

  it('tell that keys and values were held in 8 bits', async () => {
    const asked = {
      model: small,
      suite: [{ question: '1 + 1?', answer: '#### 2' }],
      prompt: 'raw',
      maxNewTokens: 2,
    } as const;
    const plain = await evaluateBenchmark(asked);
    const eightBits = await evaluateBenchmark({ ...asked, cacheDtype: 'int8' });
    expect([plain.cache_dtype, eightBits.cache_dtype]).toEqual([undefined, 'int8']);
    expect(describeBenchmark(eightBits)).toContain('held in int8');
    expect(describeBenchmark(plain)).not.toContain('held in');
  });

  it('follow instructions, or not: what code cannot decide is left out and counted', async () => {
    const prompts = [
      {
        prompt: 'a',
        instruction_id_list: ['punctuation:no_comma', 'language:response_language'],
        kwargs: [{}, { language: 'fr' }],
      },
      { prompt: 'b', instruction_id_list: ['startend:quotation', 'punctuation:no_comma'], kwargs: [{}, {}] },
      { prompt: 'c', instruction_id_list: ['language:response_language'], kwargs: [{}] },
    ];
    const results = await evaluateBenchmark({ model: small, suite: prompts, maxNewTokens: 6, prompt: 'raw' });
    expect(results.left_out).toEqual({
      'instruction language:response_language fr': 1,
      'instruction language:response_language': 1,
      'prompts without another instruction': 1,
    });
    const [first, second] = (results.outcomes[0] ?? []).map(({ sample }) => sample as { response: string });
    const comma = [first, second].map((sample) =>
      Number(sample?.response.trim() !== '' && !sample?.response.includes(',')),
    );
    const { metrics } = results.models[0] as (typeof results.models)[number];
    // no six-token response of this model is in quotation marks
    expect(metrics.prompt_strict?.value).toBe((comma[0] as number) / 2);
    expect(metrics.instruction_strict?.value).toBeCloseTo(((comma[0] as number) + (comma[1] as number)) / 3, 12);
  });
});

it('never shows a question as its own example, and prefers its subject', () => {
  const pool = rows.map(({ question, subject }) => ({
    kind: 'answer' as const,
    text: question,
    subject,
    answer: '',
    solution: '',
  }));
  for (const question of pool) {
    const shots = shotsFor(question, pool, 3, 7);
    expect(new Set(shots.map(({ text }) => text)).size).toBe(3);
    expect(shots.every(({ text, subject }) => text !== question.text && subject === question.subject)).toBe(true);
    expect(shotsFor(question, pool.slice().reverse(), 0, 7)).toEqual([]);
  }
  expect(shotsFor(pool[0] as (typeof pool)[number], pool, 3, 7)).toEqual(
    shotsFor(pool[0] as (typeof pool)[number], pool, 3, 7),
  );
});

it.each([
  [{ shots: 40 }, /--shots 40: there are only 40 examples/],
  [{ k: 4 }, /--k is for answers/],
  [{ k: 4, samples: 2 }, /--k 4 wants at least 4 samples/],
])('refuses %j', async (options, message) => {
  await expect(evaluateBenchmark({ model: small, suite: rows, format: 'choice', ...options })).rejects.toThrow(message);
});

it('is a command: results, report, picture and samples', async () => {
  const file = join(folder, 'set.jsonl');
  writeFileSync(file, rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
  const out = join(folder, 'out');
  const models = ['--model', join(folder, 'small'), '--against', join(folder, 'other')];
  const run = [
    'evaluate',
    'benchmark',
    ...models,
    '--suite',
    file,
    '--shots',
    '1',
    '--limit',
    '12',
    '--output-dir',
    out,
  ];
  const { code, out: told } = await attune(...run);
  expect(code).toBe(0);
  expect(told).toMatch(/mmlu, by log-prob of choices\): 12 questions/);
  const saved = JSON.parse(readFileSync(join(out, 'benchmark.json'), 'utf8'));
  expect(saved.models).toHaveLength(2);
  expect(saved.models[0].metrics.acc.interval).toHaveLength(2);
  expect(readFileSync(join(out, 'samples.jsonl'), 'utf8').trim().split('\n')).toHaveLength(12);
  expect(JSON.parse(readFileSync(join(out, 'samples_against.jsonl'), 'utf8').split('\n')[0] ?? '')).toHaveProperty(
    'scores.acc',
  );
  expect(readFileSync(join(out, 'benchmark.png')).subarray(1, 4).toString()).toBe('PNG');
  const alone = run.filter((word) => word !== '--against' && word !== join(folder, 'other'));
  expect((await attune(...alone)).code).toBe(0);
  // Files of the earlier evaluation are removed.
  expect(readdirSync(out).sort()).toEqual(['benchmark.json', 'benchmark.png', 'benchmark.txt', 'samples.jsonl']);
  const both = await attune(...run, '--chat', '--raw');
  expect([both.code, both.err]).toEqual([2, expect.stringContaining('either --chat or --raw')]);
});
