import { expect, it } from 'vitest';
import { policyNames } from './evaluate-policy.ts';

it.each([
  ['models/tiny', undefined, { policy: 'tiny' }],
  ['checkpoints/grpo/run-1/final', 'models/tiny', { policy: 'run-1', opponent: 'tiny' }],
  ['runs/a/step-20', 'Qwen/Qwen3-0.6B', { policy: 'a', opponent: 'Qwen3-0.6B' }],
  ['a/run/final', 'b/run/best_model', { policy: 'a/run/final', opponent: 'b/run/best_model' }],
])('%s against %s is called so', (policy, opponent, names) => expect(policyNames(policy, opponent)).toEqual(names));
