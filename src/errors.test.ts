import { expect, it } from 'vitest';
import { nearest } from './errors.ts';

it.each([
  ['rewrad', ['reward', 'policy'], 'reward'],
  ['gdc', ['gcd', 'countdown'], 'gcd'],
  ['rnu', ['run', 'other'], 'run'],
  ['learning_rat', ['learning_rate', 'lr'], 'learning_rate'],
  ['pairs.jsnol', ['pairs.jsonl'], 'pairs.jsonl'],
  // nothing of these was meant
  ['nope.jsonl', ['broken.jsonl'], undefined],
  ['foo', ['bot', 'user'], undefined],
  ['x', ['y'], 'y'],
])('%s among %j means %s', (name, known, meant) => expect(nearest(name, known)).toBe(meant));
