import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { loadTokenizer } from '../models/index.ts';
import { datasetPrompts } from './dataset-prompts.ts';
import { PromptWriter } from './prompts.ts';
import { rewardItem } from './rollout.ts';

const tokenizer = await loadTokenizer(join(import.meta.dirname, '../../models/tiny'));

describe('prompts of a dataset', () => {
  it("give reward functions the row's other columns, and the final answer", async () => {
    const columns = { colour: 'red', level: 2, strict: true, tests: ['f(1) == 2'], limits: { seconds: 3 }, none: null };
    const fieldsOf = async (row: Record<string, unknown>) => {
      const options = { dataset: [row], evalPrompts: 0, seed: 1 };
      const { train } = await datasetPrompts(new PromptWriter(tokenizer), options);
      return train.map((prompt) => rewardItem({ prompt, response: 'x' }).fields);
    };
    expect(await fieldsOf({ prompt: 'Write f.', ...columns, call: () => 1 })).toEqual([columns]);
    expect(await fieldsOf({ question: 'Add up.', answer: 'So 1 + 1.\n#### 2', level: 1 })).toEqual([
      { answer: '2', level: 1 },
    ]);
    expect(await fieldsOf({ prompt: 'Write f.' })).toEqual([undefined]);
  });
});
