/** Whether a checkpoint has steps left to train. */
import { UserError } from '../../errors.ts';
import type { Run } from '../../runs/run.ts';
import { counted } from '../../spelling.ts';
import type { LoopState } from './state.ts';
import type { StepLimit, TrainTask } from './task.ts';

/** The run is finished, and no further steps were requested. Its files stay unchanged. */
export class NothingToDo extends UserError {
  override name = 'NothingToDo';
}

const larger: Record<StepLimit, string> = { maxSteps: 'a larger --max-steps', epochs: 'more --epochs' };

export function checkUnfinished(
  path: string,
  { step, evaluationDue }: LoopState,
  { totalSteps, limits }: Pick<TrainTask, 'totalSteps' | 'limits'>,
  run: Run | undefined,
): void {
  const more = `give ${limits?.map((limit) => larger[limit]).join(' and ') ?? Object.values(larger).join(' or ')}`;
  if (step > totalSteps)
    throw new UserError(
      `${path} is at step ${step}, and ${totalSteps === 1 ? '1 step is' : `${totalSteps} steps are`} asked for: ${more}.`,
    );
  if (step === totalSteps && !evaluationDue && run?.wasFinished)
    throw new NothingToDo(
      `${run.folder} is finished: it has taken its ${counted(step, 'step')}, and there is nothing to do. To train it further, ${more}.`,
    );
}
