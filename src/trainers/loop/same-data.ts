/** Positions and shuffles are of the data that a run began with: on others they mean something else. */
import { UserError } from '../../errors.ts';
import { type LoopState, readState } from './state.ts';
import type { LoopOptions, TrainTask } from './task.ts';

/** Puts a task in its checkpoint's place in the data, which have to be the same. Returns the rest of the state. */
export async function takePlace(
  path: string,
  task: TrainTask,
  options: Pick<LoopOptions, 'allowChangedData' | 'progress'>,
): Promise<LoopState> {
  const state = readState(path);
  checkSameData(state, task, options);
  await task.restore(state.task);
  return state;
}

/** Compares the fingerprints in a checkpoint with those of the data now; either may be unknown. */
function checkSameData(
  before: Pick<LoopState, 'data' | 'heldOut'>,
  now: Pick<TrainTask, 'dataFingerprint' | 'heldOutFingerprint'>,
  { allowChangedData, progress }: Pick<LoopOptions, 'allowChangedData' | 'progress'>,
): void {
  const isOther = (was: string | undefined, is: string | undefined) =>
    was !== undefined && is !== undefined && was !== is;
  const said = isOther(before.data, now.dataFingerprint)
    ? 'The training examples are not those that this run was trained on so far: the dataset or the task has changed, or the tokenizer, or an option that decides what is read.'
    : isOther(before.heldOut, now.heldOutFingerprint)
      ? 'The held-out examples are not those that this run was evaluated on so far (--eval-dataset, --eval-split, --eval-num-prompts): its evaluations could not be compared.'
      : undefined;
  if (said === undefined) return;
  if (!allowChangedData)
    throw new UserError(`${said} Bring the data back, or go on with these with --allow-changed-data.`);
  progress?.start('resuming').done(`${said} It goes on with what is there now (--allow-changed-data)`);
}
