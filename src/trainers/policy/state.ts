/** What a checkpoint holds of policy training besides the model, the optimizer and the critic. */
import { EnvironmentError } from '../../environments/index.ts';
import { UserError } from '../../errors.ts';
import { openedEnvironments, openPrompts } from '../../rollouts/opening.ts';
import { promptsFingerprint } from '../../rollouts/prompts.ts';
import { type FoundCheckpoint, resolveConfig } from '../../runs/index.ts';
import { checkpointConfig } from '../../runs/resume.ts';
import type { Tokenizer } from '../../text/index.ts';
import type { Fingerprints } from '../loop/same-data.ts';
import { policySchema } from './config.ts';
import { promptsWithin } from './plan.ts';

export interface PolicyState {
  prompts: unknown;
  rewards: unknown;
  klCoef: number;
  taken: { steps: number; prompts: number };
  /** Responses so far, and those that the reward model could not read whole. Earlier checkpoints do not count them. */
  scored?: { responses: number; truncated: number };
  /** Names of the rewards that a program handed over: no option names them. Earlier checkpoints do not say. */
  given?: readonly string[];
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

/** The prompts that a checkpoint's options name. Rows of a program, and sets that are gone, are not known. */
export async function namedPrompts(
  checkpoint: FoundCheckpoint,
  tokenizer: Tokenizer,
  positions: number,
): Promise<Fingerprints> {
  try {
    const { config } = resolveConfig(policySchema, { checkpoint: checkpointConfig(checkpoint) });
    if ((config.task ?? config.env ?? config.agent ?? config.dataset) === undefined) return {};
    using environments = await openedEnvironments(config);
    const { prompts, evaluation } = await openPrompts(promptsWithin(config, positions), tokenizer, { environments });
    const heldOut = evaluation.length === 0 ? undefined : promptsFingerprint(evaluation);
    return { data: prompts.fingerprint, heldOut };
  } catch (error) {
    if (error instanceof UserError || error instanceof EnvironmentError) return {};
    throw error;
  }
}
