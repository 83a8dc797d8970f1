/** Positions and shuffles are of the data that a run began with: on others they mean something else. */
import { UserError } from '../../errors.ts';
import { checkUnfinished } from './finished.ts';
import { type LoopState, readState } from './state.ts';
import type { LoopOptions, TrainTask } from './task.ts';

/** The fingerprints of a run's data, as far as they are known. */
export type Fingerprints = Pick<LoopState, 'data' | 'heldOut'>;

export interface PlaceOptions extends Pick<LoopOptions, 'allowChangedData' | 'progress'> {
  /** What the checkpoint's own options name: earlier versions kept no fingerprints of some data. */
  named?: () => Promise<Fingerprints>;
}

/** What of a task its place in the data concerns. */
export type PlacedTask = Pick<TrainTask, 'dataFingerprint' | 'heldOutFingerprint' | 'restore'>;

/** What a plan of a resumed run has of its task. */
export interface PlannedPlace {
  path: string;
  task: PlacedTask & Pick<TrainTask, 'totalSteps' | 'limits'>;
}

/** Refuses in a plan what the resumed run refuses: other data, and fewer steps than it has taken. */
export async function checkPlace({ path, task }: PlannedPlace, options: PlaceOptions): Promise<void> {
  checkUnfinished(path, await takePlace(path, task, options), task, undefined);
}

/** Puts a task in its checkpoint's place in the data, which have to be the same. Returns the rest of the state. */
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
        `the checkpoint is of an earlier version and does not say what it was trained on; ${named?.data === undefined ? 'whether it was the data of now is not known' : 'its options name the data of now'}`,
      );
  await task.restore(state.task);
  return state;
}

/** Compares the fingerprints in a checkpoint with those of the data now; either may be unknown. */
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
