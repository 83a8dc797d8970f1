import { expect, it } from 'vitest';
import { shortModel } from './models.ts';

it.each([
  ['Qwen/Qwen3-0.6B', 'Qwen/Qwen3-0.6B'],
  ['/home/me/checkpoints/grpo/chain-sum/final', 'grpo/chain-sum/final'],
  ['checkpoints/grpo/run/step-20/', 'grpo/run/step-20'],
  ['models/tiny', 'models/tiny'],
  ['', ''],
])('%s is written %s', (model, text) => expect(shortModel(model)).toBe(text));
