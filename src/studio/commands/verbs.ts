/**
 * What the studio is handed from the layers above it: it knows of training only what run folders say, and of commands
 * only their schemas and how to call them.
 */
import type { ConfigSchema, MetricColumns, ResolvedRun } from '../../runs/index.ts';
import type { WhatIfAnswer, WhatIfRequest } from '../api/rollouts.ts';
import type { SignalNote } from '../api/runs.ts';

/** A `train` command: its schema gives the form, the check and the command line. */
export interface TrainVerb {
  /** sft, reward, preference, policy */
  name: string;
  description: string;
  schema: ConfigSchema;
  examples?: readonly string[];
  /** What the command checks before it loads anything; throws a UserError. */
  check?(resolved: ResolvedRun<ConfigSchema>): void;
  /** What `--dry-run` shows below the config. */
  plan(resolved: ResolvedRun<ConfigSchema>): Promise<string>;
}

/** How `attune` is started as a process of its own. */
export interface Launcher {
  file: string;
  args: readonly string[];
  env?: NodeJS.ProcessEnv;
}

export interface Above {
  verbs: readonly TrainVerb[];
  launcher?: Launcher;
  /** Explanations of metrics that are often misread. */
  signals?(metrics: MetricColumns): Omit<SignalNote, 'metrics'>[];
  /** A stored step under another algorithm or option. */
  whatIf?(folder: string, request: WhatIfRequest): Promise<WhatIfAnswer>;
  /** What `attune inspect` says of a model. */
  inspect?(model: string): Promise<{ facts: Record<string, unknown>; text: string }>;
}
