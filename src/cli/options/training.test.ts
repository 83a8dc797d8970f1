import { expect, it, vi } from 'vitest';
import { withOtherNames } from '../../rollouts/metrics.ts';
import type { TrainerOptions, TrainingRun } from '../../trainers/loop/training-run.ts';
import { evaluationLine, runTraining } from './training.ts';

/** A training that is still reading its data when it is asked to end. */
const reading = ({ signal }: TrainerOptions) => {
  const { promise, reject } = Promise.withResolvers<TrainingRun>();
  signal?.addEventListener('abort', () => reject(signal.reason));
  setImmediate(() => process.emit('SIGHUP', 'SIGHUP'));
  return promise;
};

it('a signal before the training has begun ends it in words, with the signal’s exit code', async () => {
  const told: unknown[] = [];
  const spies = [
    vi.spyOn(console, 'error').mockImplementation((text) => void told.push(text)),
    vi.spyOn(process.stderr, 'write').mockImplementation((text) => told.push(text) > 0),
  ];
  try {
    expect(await runTraining('sft', reading)).toBe(129);
  } finally {
    for (const spy of spies) spy.mockRestore();
  }
  const text = told.join('');
  expect(text).toContain('SIGHUP: stopping; press Ctrl-C again');
  expect(text).toContain('Stopped before the training began: nothing is saved');
});

it('other errors stay errors', async () => {
  await expect(runTraining('sft', async () => Promise.reject(new Error('no data')))).rejects.toThrow('no data');
});

it('a line of an evaluation has every measure once, though some are stored under two names', () => {
  const metrics = Object.entries(withOtherNames({ reward: 0.5, kl: 0.25, accuracy: 1 }));
  const named = Object.fromEntries(metrics.map(([name, value]) => [`eval/${name}`, value]));
  expect(evaluationLine(3, { ...named, 'train/loss': 2 })).toBe('step 3  held-out: reward 0.5  kl 0.25  accuracy 1');
  expect(evaluationLine(3, { 'eval/kl_div': 0.25 })).toBe('step 3  held-out: kl_div 0.25');
});
