/** A data position and a shuffle are valid only for the data that the run began with. */
import { UserError } from '../../errors.ts';
import { checkUnfinished } from './finished.ts';
import { type LoopState, readState } from './state.ts';
import type { LoopOptions, TrainTask } from './task.ts';

/** The fingerprints of a run's data, where they are known. */
export type Fingerprints = Pick<LoopState, 'data' | 'heldOut'>;

export interface PlaceOptions extends Pick<LoopOptions, 'allowChangedData' | 'progress'> {
  /**
   * The fingerprints of the data that the checkpoint's own options name, because earlier versions did not store all of
   * them.
   */
  named?: () => Promise<Fingerprints>;
}

/** The part of a task that depends on its position in the data. */
export type PlacedTask = Pick<TrainTask, 'dataFingerprint' | 'heldOutFingerprint' | 'restore'>;

/** The checkpoint and task of a planned resumption. */
export interface PlannedPlace {
  path: string;
  task: PlacedTask & Pick<TrainTask, 'totalSteps' | 'limits'>;
}

/** A plan refuses what the resumed run would refuse: other data, and fewer steps than were taken. */
export async function checkPlace({ path, task }: PlannedPlace, options: PlaceOptions): Promise<void> {
  checkUnfinished(path, await takePlace(path, task, options), task, undefined);
}

/** Moves a task to its checkpoint's position in the data, which must be unchanged. Returns the other state. */
export async function takePlace(path: string, task: PlacedTask, options: PlaceOptions): Promise<LoopState> {
  const state = readState(path);
  const lacks = (kept: string | undefined, now: string | undefined) => kept === undefined && now !== undefined;
  const isUnknown = lacks(state.data, task.dataFingerprint);
  const named =
    isUnknown || lacks(state.heldOut, task.heldOutFingerprint) ? ((await options.named?.()) ?? {}) : undefined;
  checkSameData({ ...named, ...state }, task, options);
  if (isUnknown)
    options.progress
      ?.start('resuming')
      .done(
        `the checkpoint is of an earlier version and does not say what it was trained on; ${named?.data === undefined ? 'it may have been other data than now' : 'its options name the same data as now'}`,
      );
  await task.restore(state.task);
  return state;
}

/** Compares the fingerprints in a checkpoint with those of the current data. Either may be unknown. */
function checkSameData(
  before: Fingerprints,
  now: Pick<TrainTask, 'dataFingerprint' | 'heldOutFingerprint'>,
  { allowChangedData, progress }: Pick<LoopOptions, 'allowChangedData' | 'progress'>,
): void {
  const isOther = (was: string | undefined, is: string | undefined) =>
    was !== undefined && is !== undefined && was !== is;
  const said = isOther(before.data, now.dataFingerprint)
    ? 'The training examples are not those that this run was trained on so far: the dataset, the environment or the task has changed, or the tokenizer, or an option that decides what is read.'
    : isOther(before.heldOut, now.heldOutFingerprint)
      ? 'The held-out examples are not those that this run was evaluated on so far (--eval-dataset, --eval-split, --eval-num-prompts): its evaluations could not be compared.'
      : undefined;
  if (said === undefined) return;
  if (!allowChangedData)
    throw new UserError(`${said} Bring the data back, or go on with these with --allow-changed-data.`);
  progress?.start('resuming').done(`${said} It goes on with what is there now (--allow-changed-data)`);
}
