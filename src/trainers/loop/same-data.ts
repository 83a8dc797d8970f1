/** Positions and shuffles are of the data that a run began with: on others they mean something else. */
import { UserError } from '../../errors.ts';
import type { LoopOptions } from './task.ts';

/** Compares the fingerprint in a checkpoint with that of the data now; either may be unknown. */
export function checkSameData(
  before: string | undefined,
  now: string | undefined,
  { allowChangedData, progress }: Pick<LoopOptions, 'allowChangedData' | 'progress'>,
): void {
  if (before === undefined || now === undefined || before === now) return;
  const said =
    'The training examples are not those that this run was trained on so far: the dataset or the task has changed, or the tokenizer, or an option that decides what is read.';
  if (!allowChangedData)
    throw new UserError(`${said} Bring the data back, or go on with these with --allow-changed-data.`);
  progress?.start('resuming').done(`${said} It goes on with what is there now (--allow-changed-data)`);
}
