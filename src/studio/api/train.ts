/** The train form: its fields, the check, the start. */
import type { FieldFault } from './session.ts';

/** GET /api/train/commands */
export interface TrainCommand {
  /** sft, reward, preference, policy */
  name: string;
  /** train policy */
  title: string;
  description: string;
  examples: string[];
}

/** GET /api/train/:command/schema */
export interface TrainSchema {
  command: string;
  description: string;
  /** In the order of the help. */
  groups: { name: string; fields: TrainField[] }[];
  /** Values of a run to begin from (?run=ID), by field name. */
  values?: Record<string, unknown>;
}
export interface TrainField {
  /** camelCase: the key in `values`. */
  name: string;
  /** --kebab-case */
  flag: string;
  type: 'text' | 'number' | 'integer' | 'switch' | 'choice' | 'list';
  required: boolean;
  default?: unknown;
  choices?: string[];
  /** Known values of a text; others are taken too. */
  names?: string[];
  description: string;
  examples?: string[];
  min?: number;
  max?: number;
  /** What the field names, for pickers. */
  picks?: 'model' | 'dataset' | 'run' | 'folder' | 'reward-model' | 'task';
  /** Not given a second thought in most runs: folded away. */
  advanced: boolean;
}

/** POST /api/train/:command/check and /start. Only what differs from the defaults needs to be sent. */
export interface TrainRequest {
  values: Record<string, unknown>;
}
export interface TrainCheck {
  /** All faults at once; empty: it can start. */
  faults: FieldFault[];
  /** The exact command line, only with what differs from the defaults. */
  commandLine: string;
  /** The same as a config file. */
  yaml: string;
  /** What would be loaded and how much memory it takes, as --dry-run prints it; absent where there are faults. */
  plan?: string;
  /** Why there is no plan. */
  planFailure?: string;
}
/** POST /api/train/:command/start. The run's folder may take a while to appear; the job tells its console until then. */
export interface StartAnswer {
  jobId: string;
  /** Absent while the process has not made its folder yet: read the job. */
  runId?: string;
  commandLine: string;
}
