import { describe, expect, it } from 'vitest';
import { AttuneError, UserError } from '../../errors.ts';
import { ConfigError } from './config.ts';
import { inProgramNames, spelledForProgram } from './spelling.ts';

const names = ['batchSize', 'lora', 'loraR', 'noRepeat', 'evalSteps'];

describe('option names in messages to programs', () => {
  it.each([
    ['--batch-size: expected a number', 'batchSize: expected a number'],
    ['nothing is evaluated (--eval-steps -1)', 'nothing is evaluated (evalSteps -1)'],
    ['leave out --lora-r, or pass --lora', 'leave out loraR, or pass lora'],
    ['pass --no-lora', 'pass lora: false'],
    ['pass --no-repeat', 'pass noRepeat'],
    ['npm ci --omit=optional, git log --oneline, a--lora', 'npm ci --omit=optional, git log --oneline, a--lora'],
  ])('%s', (typed, spelled) => {
    expect(inProgramNames(typed, names)).toBe(spelled);
  });

  it('an error stays what it was, and its trace says the same', () => {
    const error = new ConfigError([
      { path: '--lora-r', source: 'command line', message: 'has no effect without --lora.' },
    ]);
    expect(spelledForProgram(error, names)).toBe(error);
    expect(error.message).toBe('The configuration has a fault:\n  loraR: has no effect without lora.');
    expect(error.faults[0]).toMatchObject({ path: 'loraR', message: 'has no effect without lora.' });
    expect(error.stack).toContain('loraR: has no effect');
    expect(error.stack).not.toContain('--lora');
  });

  it('other errors are left alone', () => {
    for (const error of [new AttuneError('--lora'), new Error('--lora')])
      expect(spelledForProgram(error, names)).toBe(error);
    expect(spelledForProgram(new UserError('$& --lora'), names).message).toBe('$& lora');
  });
});
