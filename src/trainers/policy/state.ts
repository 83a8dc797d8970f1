/** What a checkpoint holds of policy training besides the model, the optimizer and the critic. */
import { UserError } from '../../errors.ts';

export interface PolicyState {
  prompts: unknown;
  rewards: unknown;
  klCoef: number;
  taken: { steps: number; prompts: number };
  /** Responses so far, and those that the reward model could not read whole. Earlier checkpoints do not count them. */
  scored?: { responses: number; truncated: number };
}

/** Checkpoints of version 0.1, and such as were written by hand, do not say how many prompts were answered. */
export function checkedState(state: unknown): PolicyState {
  const { prompts, rewards, klCoef, taken } = (state ?? {}) as Partial<PolicyState>;
  const whole = prompts !== undefined && rewards !== undefined && typeof klCoef === 'number';
  if (whole && typeof taken?.steps === 'number' && typeof taken.prompts === 'number') return state as PolicyState;
  throw new UserError(
    'This checkpoint is of an earlier version or damaged: it does not say how many prompts were answered. Start a new run from its weights, with the checkpoint as --model.',
  );
}
