import { describe, expect, it } from 'vitest';
import type { Row } from '../sources/row.ts';
import { mapRows } from './mapping.ts';
import type { Shape } from './shapes.ts';

function read(row: Row, shape?: Shape, columns = {}) {
  const drops: string[] = [];
  const mapping = mapRows(row, { shape, columns, where: 'set.jsonl' });
  return { shape: mapping.shape, examples: mapping.read(row, 7, (reason) => drops.push(reason)), drops };
}

const user = (content: string) => ({ role: 'user', content });
const assistant = (content: string) => ({ role: 'assistant', content });

describe('preference pairs', () => {
  it('takes strings, with system prompt and scores', () => {
    const row = {
      system: 'Be brief.',
      question: 'Hi?',
      chosen: 'Yes.',
      rejected: 'No.',
      score_chosen: 8,
      score_rejected: '5.5',
    };
    expect(read(row)).toEqual({
      shape: 'preference',
      examples: [
        {
          prompt: [{ role: 'system', content: 'Be brief.' }, user('Hi?')],
          chosen: 'Yes.',
          rejected: 'No.',
          margin: 2.5,
        },
      ],
      drops: [],
    });
  });

  it('splits HH transcripts at the last common "Assistant:", and takes the turns apart', () => {
    const before = '\n\nHuman: One\n\ntwo\n\nAssistant: Three\n\nHuman: Four\n\nAssistant:';
    const row = { chosen: `${before} Five, good`, rejected: `${before} Five, bad` };
    expect(read(row).examples).toEqual([
      { prompt: [user('One\n\ntwo'), assistant('Three'), user('Four')], chosen: 'Five, good', rejected: 'Five, bad' },
    ]);
  });

  it('keeps what follows the last common response where the dialogues part earlier', () => {
    const row = {
      chosen: '\n\nHuman: A\n\nAssistant: B\n\nHuman: C\n\nAssistant: D',
      rejected: '\n\nHuman: A\n\nAssistant: X\n\nHuman: C\n\nAssistant: D',
    };
    const [pair] = read(row).examples as { prompt: unknown; chosen: string; rejected: string }[];
    expect(pair?.prompt).toEqual([user('A')]);
    expect(pair?.chosen).toBe('B\n\nHuman: C\n\nAssistant: D');
    expect(pair?.rejected).toBe('X\n\nHuman: C\n\nAssistant: D');
  });

  it('takes message lists with the prompt inside, as UltraFeedback has them', () => {
    const row = { prompt: 'Q', chosen: [user('Q'), assistant('good')], rejected: [user('Q'), assistant('bad')] };
    expect(read(row).examples).toEqual([{ prompt: [user('Q')], chosen: 'good', rejected: 'bad' }]);
    // Equal responses are a tie, not a longer prompt.
    const tie = { chosen: [user('Q'), assistant('same')], rejected: [user('Q'), assistant('same')] };
    expect(read(tie).examples).toEqual([{ prompt: [user('Q')], chosen: 'same', rejected: 'same' }]);
  });

  it('takes the ShareGPT dialect', () => {
    const row = {
      conversations: [
        { from: 'system', value: 'S' },
        { from: 'human', value: 'Q' },
      ],
      chosen: { from: 'gpt', value: 'good' },
      rejected: { from: 'gpt', value: 'bad' },
    };
    expect(read(row).examples).toEqual([
      { prompt: [{ role: 'system', content: 'S' }, user('Q')], chosen: 'good', rejected: 'bad' },
    ]);
  });

  it('leaves out lists that part before the last turn, and says so', () => {
    const row = { chosen: [user('A'), assistant('1')], rejected: [user('B'), assistant('2')] };
    expect(read(row)).toMatchObject({ examples: [], drops: ['different prompts'] });
  });

  it('takes columns by name, also inside others', () => {
    const row = { ask: 'Q', meta: { good: 'g', bad: 'b' } };
    const columns = { prompt: 'ask', chosen: 'meta.good', rejected: 'meta.bad' };
    expect(read(row, 'preference', columns).examples).toEqual([{ prompt: [user('Q')], chosen: 'g', rejected: 'b' }]);
  });
});

describe('other shapes', () => {
  it('unpaired answers, from columns or from messages', () => {
    expect(read({ prompt: 'Q', completion: 'A', label: 'false' }).examples).toEqual([
      { prompt: [user('Q')], completion: 'A', label: false },
    ]);
    expect(read({ messages: [user('Q'), assistant('A')], label: true })).toMatchObject({
      shape: 'unpaired',
      examples: [{ prompt: [user('Q')], completion: 'A', label: true }],
    });
  });

  it('conversations, instructions, texts and prompts', () => {
    expect(
      read({
        conversations: [
          { from: 'human', value: 'Q' },
          { from: 'gpt', value: 'A' },
        ],
      }).examples,
    ).toEqual([{ messages: [user('Q'), assistant('A')] }]);
    expect(read({ instruction: 'Q', output: 'A' })).toMatchObject({
      shape: 'messages',
      examples: [{ messages: [user('Q'), assistant('A')] }],
    });
    expect(read({ text: 'Once upon a time' })).toMatchObject({
      shape: 'text',
      examples: [{ text: 'Once upon a time' }],
    });
    expect(read({ prompt: 'Q' })).toMatchObject({ shape: 'prompts', examples: [{ prompt: [user('Q')] }] });
  });

  it('GSM8K: the final answer apart from the solution', () => {
    const row = { question: 'Q', answer: 'So 1,000 + 1.\n#### 1,001' };
    expect(read(row, 'prompts').examples).toEqual([
      { prompt: [user('Q')], answer: '1001', solution: 'So 1,000 + 1.\n#### 1,001' },
    ]);
    expect(read(row).shape).toBe('messages');
  });

  it('graded solutions of several models share their question', () => {
    const row = {
      question: 'Q',
      ground_truth: 'G',
      small: { is_correct: false, solution: 'wrong' },
      large: { is_correct: true, solution: 'right' },
    };
    expect(read(row).examples).toEqual([
      { prompt: [user('Q')], solution: 'wrong', correct: false, group: 7, source: 'small' },
      { prompt: [user('Q')], solution: 'right', correct: true, group: 7, source: 'large' },
    ]);
    expect(read({ problem: 'Q', solution: 'S', is_correct: 1 })).toMatchObject({
      shape: 'graded',
      examples: [{ correct: true }],
    });
  });

  it('one shape as another where nothing has to be made up', () => {
    const pair = { prompt: 'Q', chosen: 'good', rejected: 'bad', source: 'web' };
    expect(read(pair, 'unpaired').examples).toEqual([
      { prompt: [user('Q')], completion: 'good', label: true, source: 'web' },
      { prompt: [user('Q')], completion: 'bad', label: false, source: 'web' },
    ]);
    expect(read(pair, 'messages').examples).toEqual([{ messages: [user('Q'), assistant('good')], source: 'web' }]);
    expect(() => read({ text: 'x' }, 'preference')).toThrow(/do not make a preference set.*reads as a text set/);
    const judged = { prompt: 'Q', completion: 'A', label: true };
    expect(() => read(judged, 'preference')).toThrow(/reads as an unpaired set/);
  });
});

describe('labelled steps', () => {
  it('PRM800K: the path taken, and each other rated step after its context', () => {
    const rated = (text: string, rating: number | null) => ({ text, rating, flagged: false });
    const row = {
      question: { problem: 'Q' },
      label: {
        finish_reason: 'found_error',
        steps: [
          { completions: [rated('a', 0), rated('b', 1)], human_completion: null, chosen_completion: 1 },
          { completions: [rated('c', -1)], human_completion: { text: 'h' }, chosen_completion: null },
          { completions: [rated('d', -1), rated('e', null)], human_completion: null, chosen_completion: null },
        ],
      },
    };
    const { shape, examples } = read(row);
    expect(shape).toBe('steps');
    expect(examples.map((example) => (example as { steps: unknown }).steps)).toEqual([
      [
        { text: 'b', label: 1 },
        { text: 'h', label: 1 },
        { text: 'd', label: -1 },
      ],
      [{ text: 'a', label: 0 }],
      [
        { text: 'b', label: null },
        { text: 'c', label: -1 },
      ],
    ]);
  });

  it('PRMBench: error steps count from 1; labels beyond the steps are left out', () => {
    const row = {
      question: 'q',
      modified_question: 'Q',
      modified_process: ['a', 'b', 'c'],
      error_steps: [2],
      classification: 'circular',
    };
    expect(read(row).examples).toEqual([
      {
        prompt: [user('Q')],
        steps: [
          { text: 'a', label: 1 },
          { text: 'b', label: -1 },
          { text: 'c', label: 1 },
        ],
        source: 'circular',
      },
    ]);
    expect(read({ ...row, error_steps: [4] })).toMatchObject({ examples: [], drops: ['step label out of range'] });
  });

  it('BIG-Bench Mistake and plain lists', () => {
    expect(read({ input: 'Q', steps: ['a', 'b', 'c'], mistake_index: 1 }).examples).toMatchObject([
      {
        steps: [
          { text: 'a', label: 1 },
          { text: 'b', label: -1 },
        ],
      },
    ]);
    expect(read({ prompt: 'Q', completions: ['a', 'b'], labels: [true, false] }).examples).toMatchObject([
      {
        steps: [
          { text: 'a', label: 1 },
          { text: 'b', label: -1 },
        ],
      },
    ]);
  });

  it('steps that carry their labels, beside the columns of the task that made them', () => {
    const steps = [
      { text: '9+6=15', label: 1 },
      { text: '15-6=8', label: -1 },
      { text: '<answer>8</answer>', label: 0 },
    ];
    const row = { prompt: 'Q', steps, task: 'chain_sum', seed: 7, difficulty: 2 };
    const example = { prompt: [user('Q')], steps, source: 'chain_sum' };
    expect(read(row)).toEqual({ shape: 'steps', examples: [example], drops: [] });
    expect(() => read({ ...row, steps: [{ text: 'a', label: 2 }] })).toThrow(/label must be -1, 0, 1.*this is 2/);
    expect(() => read({ ...row, steps: [steps[0], 'b'] })).toThrow('a step must have "text" and "label"');
  });
});

describe('faults', () => {
  it('lists the columns there are, with the nearest', () => {
    expect(() => read({ prompt: 'Q', choosen: 'a', rejected: 'b' }, 'preference')).toThrow(
      /columns prompt, choosen, rejected do not make a preference set.*Is "choosen" the chosen\? Then say --chosen-column choosen\./,
    );
    expect(() => read({ prompt: 'Q', good: 'a' }, 'preference', { chosen: 'goood' })).toThrow(
      'set.jsonl: no column "goood". The columns are prompt, good. Did you mean "good"?',
    );
    expect(() => read({ x: 1 })).toThrow(/the columns x do not make a training set. It needs chosen and rejected/);
    expect(() => read({ chosen: 'a', rejcted: 'b' })).toThrow(/Is "rejcted" the rejected\? Then say --rejected-column/);
  });

  it('names what is wrong with a row', () => {
    const mapping = mapRows({ prompt: 'Q', chosen: 'a', rejected: 'b' }, { where: 'set.jsonl' });
    const at = (row: Row) => () => mapping.read(row, 0, () => {});
    expect(at({ prompt: 'Q', chosen: 'a' })).toThrow('no value in "rejected" (the row has prompt, chosen)');
    expect(at({ prompt: 5, chosen: 'a', rejected: 'b' })).toThrow(
      '"prompt" must be text or a list of messages, this is a number',
    );
    expect(at({ prompt: [{ role: 'usr', content: 'x' }], chosen: 'a', rejected: 'b' })).toThrow(
      /role "usr".*Did you mean "user"/,
    );
    expect(at({ prompt: [{ role: 'constructor', content: 'x' }], chosen: 'a', rejected: 'b' })).toThrow(
      'has the role "constructor"',
    );
    const unpaired = mapRows({ prompt: 'Q', completion: 'a', label: true }, { where: 'set' });
    expect(() => unpaired.read({ prompt: 'Q', completion: 'a', label: 'maybe' }, 0, () => {})).toThrow(
      '"label" must be true or false',
    );
  });
});
