import { describe, expect, it } from 'vitest';
import { formatReward, respond } from './format.ts';

const solution = { steps: [{ text: '3+4=7', label: 1 as const }], answer: '7', score: 1 };

describe('formatReward', () => {
  it('is 1 for the whole form and nothing else', () => {
    expect(respond(solution)).toBe('<think>\n3+4=7\n</think>\n<answer>7</answer>');
    expect(formatReward(respond(solution))).toBe(1);
    expect(formatReward(' <think>a</think><answer>7</answer>\n')).toBe(1);
    expect(formatReward('Sure! <think>a</think><answer>7</answer>')).toBe(0.75);
    expect(formatReward('<think>a</think><answer>7</answer> Hope it helps.')).toBe(0.75);
    expect(formatReward('<think>a</think> so <answer>7</answer>')).toBe(0.75);
    expect(formatReward('<answer>7</answer><think>a</think>')).toBe(0.75);
  });

  it('rises with the tags that are there', () => {
    expect(formatReward('7')).toBe(0);
    expect(formatReward('<think>a')).toBeCloseTo(0.1875);
    expect(formatReward('<think>a</think>7')).toBeCloseTo(0.375);
    expect(formatReward('<think>a</think><answer>7')).toBeCloseTo(0.5625);
    expect(formatReward('<think><think>a</think><answer>7</answer>')).toBeCloseTo(0.5625);
  });

  it('can do without thinking, or with thinking that the template opened', () => {
    expect(formatReward(respond(solution, 'answer'), { think: false })).toBe(1);
    expect(formatReward(respond(solution, 'steps'), { think: false })).toBe(0.75);
    expect(formatReward('3+4=7</think><answer>7</answer>', { opened: true })).toBe(1);
    expect(formatReward('7', { opened: true })).toBe(0);
  });

  it('does not ask whether the answer is right', () => {
    expect(formatReward('<think>x</think><answer>wrong</answer>')).toBe(1);
  });
});
