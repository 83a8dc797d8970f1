import { describe, expect, it } from 'vitest';
import { task } from '../tasks/index.ts';
import { agreement, answerVerifier, isRight } from './answer.ts';
import { tolerant } from './program/tolerant.ts';

describe('known answers', () => {
  it('compares numbers and words', () => {
    expect(agreement('2 + 2 = 4, so 1,004.0', '1004')).toBe(1);
    expect(agreement('<answer>7</answer>', '8')).toBe(0);
    expect(agreement('The answer is: Tac.', 'tac')).toBe(1);
  });

  it('scores rows and refuses those without an answer', async () => {
    const verifier = answerVerifier();
    expect(await verifier.score([{ prompt: '', response: 'it is 5', fields: { answer: '5' } }])).toEqual([1]);
    await expect(verifier.score([{ prompt: '', response: '5' }])).rejects.toThrow('no known answer');
  });

  it('says what is right where anything is known', () => {
    expect(isRight({ prompt: '', response: '5' })).toBeUndefined();
    expect(isRight({ prompt: '', response: '5', fields: { answer: '5' } })).toBe(true);
    const example = task('chain_sum').generate(3, 1);
    expect(isRight({ prompt: '', response: `<answer>${example.answer}</answer>`, example })).toBe(true);
    expect(isRight({ prompt: '', response: '<answer>-1000</answer>', example })).toBe(false);
  });
});

describe('tolerant', () => {
  it('scores the samples that fail, and only those', async () => {
    const failures: string[] = [];
    const touchy = tolerant(
      {
        name: 'touchy',
        score: async (items) =>
          items.map(({ response }) => {
            if (response === 'bad') throw new Error('no such word');
            return response.length;
          }),
      },
      { value: -1, onFailure: (error) => failures.push(error.message) },
    );
    const items = ['one', 'bad', 'three'].map((response) => ({ prompt: '', response }));
    expect(await touchy.score(items)).toEqual([3, -1, 5]);
    expect(failures).toEqual(['The reward "touchy" failed on 1 sample, which gets -1; the first: no such word']);
    expect((await touchy.parts?.(items))?.parts).toEqual({ touchy: [3, -1, 5] });
  });
});
