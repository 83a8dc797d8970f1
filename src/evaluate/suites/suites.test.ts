import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { afterAll, afterEach, describe, expect, it, vi } from 'vitest';
import { startHub } from '../../hub/server.test-support.ts';
import { evaluateRewardSuite } from '../ranked/reward-suite.ts';
import { answer } from './answer.ts';
import { arc, choice, hellaswag, mmlu } from './choice.ts';
import { formatOf } from './formats.ts';
import { gsm8k } from './gsm8k.ts';
import { knownSuite, knownSuites } from './known.ts';
import { lastBoxed, latexForm } from './latex.ts';
import { asLetters } from './letters.ts';
import { math } from './math.ts';
import { openSuite } from './open.ts';
import type { AnswerFormat } from './question.ts';
import { openShotPool } from './shot-pool.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-suites-'));
afterAll(() => rmSync(folder, { recursive: true }));
afterEach(() => vi.unstubAllEnvs());
const written = (name: string, text: string) => {
  mkdirSync(join(folder, name, '..'), { recursive: true });
  writeFileSync(join(folder, name), text);
  return join(folder, name);
};
const lines = (rows: readonly object[]) => rows.map((row) => `${JSON.stringify(row)}\n`).join('');

describe('answers in responses', () => {
  const judged = (format: AnswerFormat, response: string, known: string) =>
    [format.strict(response), format.lenient(response, known)].map(
      (found) => found !== undefined && format.form(found) === format.form(known),
    );

  it.each([
    ['She has 5 + 67 = 72.\n#### 72', '72', [true, true]],
    ['So it is 72', '72', [false, true]],
    ['#### 1,234\nQuestion', '1234', [true, true]],
    ['It costs $1,250.', '1250', [false, true]],
    // Strict takes the first marker, lenient the last number.
    ['#### 7 and then #### 8', '7', [true, false]],
    ['no number at all', '7', [false, false]],
    ['#### -3', '-3', [true, true]],
  ])('gsm8k: %s', (response, known, right) => expect(judged(gsm8k, response, known)).toEqual(right));

  it.each([
    ['so $\\boxed{\\frac{1}{2}}$', '\\dfrac12', [true, true]],
    ['\\boxed{3} or rather \\boxed{4}', '4', [true, true]],
    ['the answer is $x = 5$.', '5', [false, true]],
    ['\\boxed{(1, 2)}', '(1,2)', [true, true]],
    ['\\boxed{0.5}', '\\frac{1}{2}', [true, true]],
    ['\\boxed{10\\%}', '10', [true, true]],
    ['\\boxed{2\\sqrt3}', '2\\sqrt{3}', [true, true]],
    ['\\boxed{12 \\text{ inches}}', '12', [true, true]],
    ['\\boxed{\\text{Evelyn}}', 'evelyn', [true, true]],
    ['\\boxed{1,000}', '1000', [true, true]],
    ['\\boxed{30^\\circ}', '30', [true, true]],
    ['\\boxed{x+1', 'x+1', [false, false]],
    ['\\boxed{3}', '4', [false, false]],
  ])('math: %s', (response, known, right) => expect(judged(math, response, known)).toEqual(right));

  it('matches braces inside a box, and tells forms apart that are not equal', () => {
    expect(lastBoxed('\\boxed{\\sqrt{\\frac{a}{b}}} done')).toBe('\\sqrt{\\frac{a}{b}}');
    expect(lastBoxed('\\boxed 7$')).toBe('7');
    expect(latexForm('\\left(3, \\frac{\\pi}{2} \\right)')).toBe(latexForm('(3,\\frac{\\pi}{2})'));
    expect(latexForm('\\frac{3}{4}')).not.toBe(latexForm('\\frac{4}{3}'));
    expect(latexForm('-\\frac{2}{3}')).toBe(latexForm('\\frac{-2}{3}'));
  });

  it.each([
    ['thus <answer>7</answer>', '7', [true, true]],
    ['thus 7', '7', [false, true]],
    ['The answer is: Tac.', 'tac', [false, true]],
    ['<answer>cat</answer>', 'tac', [false, false]],
  ])('answer: %s', (response, known, right) => expect(judged(answer, response, known)).toEqual(right));

  it.each([
    ['Answer: B', 'B', [true, true]],
    ['The answer is (b).', 'B', [true, true]],
    ['B', 'B', [true, true]],
    ['I would say C or B', 'B', [false, true]],
    ['A reason. The answer is C', 'B', [false, false]],
  ])('letters: %s', (response, known, right) => expect(judged(asLetters(choice), response, known)).toEqual(right));
});

const graded = join(process.env.ATTUNE_SHARED ?? join(import.meta.dirname, '../../../../shared'), 'data/gsm8k');
if (existsSync(graded)) {
  it('agrees with the published grades of 5,276 solutions to GSM8K', () => {
    const read = (name: string) =>
      gunzipSync(readFileSync(join(graded, name)))
        .toString()
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line));
    const known = new Map(read('test.jsonl.gz').map((row) => [row.question, gsm8k.read(row).answer]));
    const solutions = read('example_model_solutions.jsonl.gz').flatMap((row) =>
      ['6b_finetuning', '6b_verification', '175b_finetuning', '175b_verification'].map((name) => ({
        ...{ answer: known.get(row.question) as string, ...row[name] },
      })),
    );
    expect(solutions).toHaveLength(5276);
    const wrong = solutions.filter(({ solution, answer, is_correct: right }) => {
      const found = gsm8k.lenient(solution, answer);
      return (found !== undefined && gsm8k.form(found) === gsm8k.form(answer)) !== right;
    });
    expect(wrong).toEqual([]);
  });
}

describe('rows', () => {
  const rows = {
    gsm8k: { question: 'How many?', answer: 'Some.\n#### 72' },
    math: { problem: 'What is $1+1$?', solution: 'It is $\\boxed{2}$.', answer: '2', subject: 'Algebra', level: 1 },
    answer: { prompt: 'Reverse "abc".', answer: 'cba' },
    arc: { question: 'Why?', choices: { text: ['so', 'not'], label: ['1', '2'] }, answerKey: '2' },
    hellaswag: {
      ...{ activity_label: 'Cooking', ctx_a: 'A man stands [header] here.', ctx_b: 'he', label: '1' },
      ...{ ctx: '', endings: ['sits [step] down.', 'eats  it.', 'runs.', 'sings.'] },
    },
    mmlu: { question: ' What? ', choices: ['w', 'x', 'y', 'z'], answer: 3, subject: 'high_school_physics' },
    choice: { question: 'Which?', choices: ['one', 'two'], answer: 'B' },
    ifeval: { prompt: 'Say hi.', instruction_id_list: ['punctuation:no_comma'], kwargs: [{ num_words: null }] },
  };

  it.each(Object.entries(rows))('%s is recognised', (name, row) => expect(formatOf(row, 'set').name).toBe(name));

  it('are read as the harness reads them', () => {
    expect(arc.read(rows.arc)).toMatchObject({ choices: ['so', 'not'], right: 1 });
    expect(hellaswag.read(rows.hellaswag)).toMatchObject({
      ...{ text: 'Cooking: A man stands here. He', right: 1 },
      choices: ['sits down.', 'eats it.', 'runs.', 'sings.'],
    });
    const question = mmlu.read(rows.mmlu);
    expect(mmlu.prompt(question)).toBe('What?\nA. w\nB. x\nC. y\nD. z\nAnswer:');
    expect(mmlu.continuations(question)).toEqual(['A', 'B', 'C', 'D']);
    expect(mmlu.description?.(question)).toContain('about high school physics.');
    expect(choice.read({ question: 'q', choices: '["one","two"]', answer: '1' })).toMatchObject({ right: 1 });
    expect(choice.read({ question: 'q', choices: ['one', 'two'], answer: 'two' })).toMatchObject({ right: 1 });
    expect(gsm8k.read(rows.gsm8k)).toMatchObject({ answer: '72', solution: 'Some.\n#### 72' });
    expect(math.read(rows.math)).toMatchObject({ answer: '2', subject: 'Algebra' });
  });

  it('that are broken are named with their place', async () => {
    const file = written('broken.jsonl', lines([rows.choice, { question: 'q', choices: ['one', 'two'], answer: 'Z' }]));
    await expect(openSuite(file)).rejects.toThrow(/broken\.jsonl:2: the right one of 2 choices/);
    await expect(openSuite([{ a: 1, b: 2 }])).rejects.toThrow(/columns a, b are of no known question format/);
    await expect(openSuite([rows.gsm8k], { mode: 'choice' })).rejects.toThrow(/--mode choice/);
    await expect(openSuite('gsmk8')).rejects.toThrow(/neither a file nor a known suite. Did you mean "gsm8k"\?/);
  });
});

describe('sets', () => {
  const questions = (part: string, count: number) =>
    lines(Array.from({ length: count }, (_, i) => ({ question: `${part} ${i}`, answer: `#### ${i}` })));

  it('draws a limit under the seed, and takes examples from the train file beside', async () => {
    const file = written('gsm/test.jsonl', questions('test', 20));
    written('gsm/train.jsonl', questions('train', 9));
    const suite = await openSuite(file, { limit: 5, seed: 1 });
    expect(suite.questions).toHaveLength(5);
    expect((await openSuite(file, { limit: 5, seed: 1 })).places).toEqual(suite.places);
    expect((await openSuite(file, { limit: 5, seed: 2 })).places).not.toEqual(suite.places);
    const pool = await openShotPool(suite);
    expect([pool.questions.length, pool.questions[0]?.text]).toEqual([9, 'train 0']);
    const whole = await openSuite(join(folder, 'gsm'));
    expect([whole.questions.length, (await openShotPool(whole)).from]).toEqual([20, 'the train part']);
  });

  it('whose path is mistyped are refused without asking the hub', async () => {
    // No hub listens there, so a request would fail with a network error.
    vi.stubEnv('HF_ENDPOINT', 'http://127.0.0.1:9');
    const message = /^docs\/evaluat: no such file or folder; docs\/ is a folder here\. .* write docs\/evaluat@main\.$/;
    await expect(openSuite('docs/evaluat')).rejects.toThrow(message);
    await expect(openSuite('nope/questions.jsonl')).rejects.toThrow('nope/questions.jsonl: no such file or folder.');
    const scorer = { name: 'one', score: async () => [] };
    await expect(evaluateRewardSuite({ scorer, suite: 'docs/evaluat' })).rejects.toThrow(message);
  });

  it('of several files take their subjects from the files', async () => {
    written('parts/law.test.jsonl', questions('law', 1));
    written('parts/art.test.jsonl', questions('art', 1));
    const { questions: asked } = await openSuite(join(folder, 'parts'));
    expect(asked.map(({ text, subject }) => [text, subject])).toEqual([
      ['art 0', 'art'],
      ['law 0', 'law'],
    ]);
  });

  it('without a train part gives its own questions as examples', async () => {
    const file = written('alone.csv', 'question,answer\nq1,a1\nq2,a2\n');
    const suite = await openSuite(file);
    expect(suite.format.name).toBe('answer');
    expect((await openShotPool(suite)).from).toMatch(/the set itself/);
  });

  it('of the hub are known by name, with their columns, parts and examples', async () => {
    expect(knownSuite('ARC_Challenge')?.subset).toBe('ARC-Challenge');
    expect(knownSuite('math500')?.repo).toBe('HuggingFaceH4/MATH-500');
    expect(knownSuites.map(({ name }) => name)).toContain('ifeval');
    const dev = (subject: string) => ({ question: 'dev?', choices: ['a', 'b', 'c', 'd'], answer: 0, subject });
    const hub = await startHub({
      'openai/gsm8k': {
        ...{
          'main/test-00000-of-00001.jsonl': questions('test', 3),
          'main/train-00000-of-00001.jsonl': questions('train', 4),
        },
        'socratic/test-00000-of-00001.jsonl': questions('socratic', 2),
      },
      'cais/mmlu': {
        'all/test-00000-of-00001.jsonl': lines([{ ...dev('law'), question: 'test?' }]),
        'all/validation-00000-of-00001.jsonl': lines([{ ...dev('law'), question: 'validation?' }]),
        'all/dev-00000-of-00001.jsonl': lines([dev('law'), dev('art')]),
        'law/test-00000-of-00001.jsonl': lines([dev('law')]),
      },
      'google/IFEval': { 'ifeval_input_data.jsonl': lines([{ prompt: 'p', instruction_id_list: [], kwargs: [] }]) },
    });
    vi.stubEnv('HF_ENDPOINT', hub.endpoint);
    vi.stubEnv('HF_HUB_CACHE', join(folder, 'cache'));
    try {
      const suite = await openSuite('gsm8k');
      expect(suite.questions.map(({ text }) => text)).toEqual(['test 0', 'test 1', 'test 2']);
      expect((await openShotPool(suite)).questions).toHaveLength(4);
      const subjects = await openSuite('mmlu');
      expect(subjects.questions.map(({ text }) => text)).toEqual(['test?']);
      expect((await openShotPool(subjects)).questions.map(({ text, subject }) => [text, subject])).toEqual([
        ['dev?', 'law'],
        ['dev?', 'art'],
      ]);
      expect((await openSuite('ifeval')).questions).toHaveLength(1);
      expect((await openSuite('openai/gsm8k', { subset: 'socratic' })).questions).toHaveLength(2);
    } finally {
      await hub.close();
    }
  });
});
