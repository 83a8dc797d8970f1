import { afterEach, describe, expect, it, vi } from 'vitest';
import { AttuneError, UserError } from './errors.ts';
import { counted, speakTo, spelledFor } from './spelling.ts';

afterEach(() => void speakTo('command line'));

describe('option names in messages', () => {
  it.each([
    ['--batch-size: expected a number', 'batchSize: expected a number', 'batch_size: expected a number'],
    [
      'nothing is evaluated (--eval-steps -1)',
      'nothing is evaluated (evalSteps -1)',
      'nothing is evaluated (eval_steps -1)',
    ],
    ['leave out --lora-r, or pass --lora.', 'leave out loraR, or pass lora.', 'leave out lora_r, or pass lora.'],
    ['pass --no-save-rollouts', 'pass saveRollouts: false', 'pass save_rollouts: false'],
    ['--training.learning-rate: no', 'training.learningRate: no', 'training.learning_rate: no'],
  ])('%s', (typed, program, file) => {
    expect(spelledFor('command line', typed)).toBe(typed);
    expect(spelledFor('program', typed)).toBe(program);
    expect(spelledFor('file', typed)).toBe(file);
  });

  it.each([
    'npm ci --omit=optional',
    'NODE_OPTIONS=--max-old-space-size',
    'a--lora, a -- b',
    'Go on with: attune train sft --resume-from ./checkpoints/sft/run-1/step-2',
    'evaluate it with attune evaluate reward --suite.',
    'attune train --config <the YAML file of its pipeline> --resume',
  ])('%s stays as it is typed', (text) => {
    expect(spelledFor('program', text)).toBe(text);
  });

  it('a command ends where its sentence does', () => {
    const text = 'not a result of attune quantize. Name another with --output-dir (attune runs lists them), or --out.';
    expect(spelledFor('program', text)).toBe(
      'not a result of attune quantize. Name another with outputDir (attune runs lists them), or out.',
    );
  });

  it('every error of attune is told to whoever reads it, in its trace too', () => {
    speakTo('program');
    for (const Kind of [AttuneError, UserError]) {
      const error = new Kind('leave out --lora-r', { cause: 1 });
      expect(error).toMatchObject({ message: 'leave out loraR', cause: 1 });
      expect(error.stack).toContain('leave out loraR');
    }
    expect(new AttuneError().message).toBe('');
  });

  it('a process speaks to programs until it is told otherwise', async () => {
    vi.resetModules();
    const fresh = await import('./spelling.ts');
    expect(fresh.spelled('--batch-size')).toBe('batchSize');
  });
});

it('counts in words', () => {
  const texts = ([0, 1, 1234] as const).map((count) => counted(count, 'step'));
  expect([...texts, counted(2, 'loss'), counted(2, 'batch')]).toEqual([
    ...['0 steps', '1 step', '1,234 steps'],
    ...['2 losses', '2 batches'],
  ]);
});
