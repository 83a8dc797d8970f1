import { expect, it } from 'vitest';
import { task } from '../tasks/index.ts';
import { configuredScorer } from './scorer.ts';

const example = task('gcd').generate(4, 1);
const config = {
  task: 'gcd:1',
  formatReward: false,
  rewardTimeout: 60,
  onRewardError: 'stop' as const,
  dtype: 'float32' as const,
};
const total = async (rewardWeights: string[]) => {
  const scorer = await configuredScorer({ ...config, rewardWeights }, { device: 'cpu', prompts: [] });
  const response = `<answer>${example.answer}</answer>`;
  return (await scorer.score([{ prompt: example.prompt, response, example }]))[0];
};

it('a part has the weight that is named for it, not that times the weight of its reward', async () => {
  // The answer is right and has two of four tags, once each: its format scores 0.75 · 2/4.
  expect(await total(['verifier=2', 'format=0.3'])).toBeCloseTo(2 + 0.3 * 0.375, 12);
  expect(await total(['verifier=2'])).toBe(2);
});

it('a weight for a reward that is not there is refused', async () => {
  await expect(total(['verifer=2'])).rejects.toThrow(
    '--reward-weights: there is no reward "verifer". Did you mean "verifier"?',
  );
});

it.each([
  [['verifier=1', 'verifier=2'], 'verifier has two weights'],
  [['verifier=1=2'], '"verifier=1=2" is not name=weight'],
  [['verifier= '], 'is not name=weight'],
])('weights %j are refused', async (weights, message) => {
  await expect(total(weights)).rejects.toThrow(
    `--reward-weights: ${message.startsWith('is') ? '"verifier= " ' : ''}${message}`,
  );
});

it('a weight may stand behind a colon, and spaces around it', async () => {
  expect(await total(['verifier : 3'])).toBe(3);
});
