/** The state of policy training in a checkpoint, besides model, optimizer and critic. */
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
  /** The run's responses, and those too long for the reward model. Absent in checkpoints of earlier versions. */
  scored?: { responses: number; truncated: number };
  /** Names of the rewards passed by a program, which no option names. Absent in checkpoints of earlier versions. */
  given?: readonly string[];
}

/** Checkpoints of version 0.1 and handwritten ones lack the number of prompts. */
export function checkedState(state: unknown): PolicyState {
  const { prompts, rewards, klCoef, taken } = (state ?? {}) as Partial<PolicyState>;
  const whole = prompts !== undefined && rewards !== undefined && typeof klCoef === 'number';
  if (whole && typeof taken?.steps === 'number' && typeof taken.prompts === 'number') return state as PolicyState;
  throw new UserError(
    'This checkpoint is of an earlier version or damaged: it does not say how many prompts were answered. Start a new run from its weights, with the checkpoint as --model.',
  );
}

/** The fingerprints of the prompts that a checkpoint's options name. In-memory rows and deleted datasets have none. */
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
