import { describe, expect, it } from 'vitest';
import type { TrainField, TrainSchema } from '../../../src/studio/api.ts';
import { asTyped, defaultText, matches, toSend } from './values.ts';

const field = (name: string, type: TrainField['type'], more: Partial<TrainField> = {}): TrainField => ({
  name,
  type,
  flag: `--${name}`,
  required: false,
  description: `what ${name} does`,
  advanced: false,
  ...more,
});
const schema: TrainSchema = {
  command: 'policy',
  description: '',
  groups: [
    { name: 'a', fields: [field('lr', 'number'), field('steps', 'integer'), field('lora', 'switch')] },
    { name: 'b', fields: [field('tasks', 'list'), field('model', 'text'), field('kind', 'choice')] },
  ],
};

describe('the form of a training', () => {
  it('sends only what was given, as the type of its field', () =>
    expect(
      toSend(schema, { lr: ' 1e-5 ', steps: '', lora: 'false', tasks: 'a, b,', model: '0.5', kind: 'x', strange: 'y' }),
    ).toEqual({ lr: 1e-5, lora: false, tasks: ['a', 'b'], model: '0.5', kind: 'x' }));

  it('leaves it to the command to refuse what is no number', () =>
    expect(toSend(schema, { lr: 'fast' })).toEqual({ lr: 'fast' }));

  it('writes values as they would be typed', () => {
    expect([asTyped([1, 2]), asTyped(null), asTyped(false), asTyped('x')]).toEqual(['1, 2', '', 'false', 'x']);
    expect(defaultText(field('a', 'text', { required: true }))).toBe('required');
    expect(defaultText(field('a', 'list', { default: [] }))).toBe('none');
    expect(defaultText(field('a', 'number', { default: 0.2 }))).toBe('0.2');
  });

  it('is searched by name, flag and description', () => {
    expect(matches(field('klCoef', 'number'), 'kl does')).toBe(true);
    expect(matches(field('klCoef', 'number'), 'kl beta')).toBe(false);
  });
});
