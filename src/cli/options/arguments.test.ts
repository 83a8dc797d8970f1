import { expect, it } from 'vitest';
import { normalizeArguments } from './arguments.ts';

it.each([
  [
    ['train', 'policy', '--grad_accum', '4'],
    ['train', 'policy', '--grad-accum', '4'],
  ],
  [
    ['--max_new_tokens=1_000', '--no_lora'],
    ['--max-new-tokens=1_000', '--no-lora'],
  ],
  [
    ['--model', 'my_org/my_model', 'a_b'],
    ['--model', 'my_org/my_model', 'a_b'],
  ],
  [
    ['launch', '--n_proc', '2', '--', 'x', '--keep_this'],
    ['launch', '--n-proc', '2', '--', 'x', '--keep_this'],
  ],
  [
    ['--prompt', '--a_b and more'],
    ['--prompt', '--a_b and more'],
  ],
  [
    ['-o_x', '--already-kebab'],
    ['-o_x', '--already-kebab'],
  ],
])('%j becomes %j', (given, wanted) => expect(normalizeArguments(given)).toEqual(wanted));
