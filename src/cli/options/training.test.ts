import { expect, it, vi } from 'vitest';
import type { TrainerOptions, TrainingRun } from '../../trainers/loop/training-run.ts';
import { runTraining } from './training.ts';

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
