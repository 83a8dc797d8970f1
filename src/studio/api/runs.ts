/** Runs: the list, one run, its metrics, its events; stop, resume, tag, delete, compare. */

/** running: a process writes it. crashed: it says running, and no process does. */
export type RunState = 'running' | 'finished' | 'interrupted' | 'failed' | 'crashed' | 'unknown';

/** One row of GET /api/runs, newest first. */
export interface RunRow {
  /** Opaque: a hash of the path below the root. */
  id: string;
  name: string;
  /** Path below the root. */
  path: string;
  /** policy, reward, preference, sft, quantised, unknown … */
  kind: string;
  /** grpo, ppo, … or dpo, ipo, …: the algorithm or loss where the kind has one. */
  method?: string;
  /** The model that training began from, as the config names it. */
  model?: string;
  /** The model underneath all adapters and quantised copies. */
  base?: string;
  dataset?: string;
  task?: string;
  state: RunState;
  step: number;
  /** Steps that the run will take, where it is known. */
  totalSteps?: number;
  /** The metric that says most (held-out accuracy, else reward, else loss): its newest value. */
  metric?: { name: string; value: number };
  /** The last values of all metrics. */
  last: Record<string, number | null>;
  best?: { name: string; value: number; step: number };
  bytes: number;
  created: number;
  updated: number;
  /** Wall-clock seconds from the first metrics row to the last. */
  seconds?: number;
  checkpoints: number;
  hasRollouts: boolean;
  /** Whether token data is stored: token view and what-if are offered. */
  hasTokens: boolean;
  tags: string[];
  /** The run whose checkpoint this one began from, where it is under the root. */
  parent?: string;
  /** A small curve for the table: at most 40 values of `metric.name`. */
  spark?: number[];
  /** Warnings among the signals; absent until its metrics have been looked through, and where no signals are known. */
  warnings?: number;
  /** Runs with the same value differ in nothing but their seed. */
  setup: string;
  seed?: number;
}

/** GET /api/runs/:id */
export interface RunDetail extends RunRow {
  /** Every option, in the order of the command's groups. */
  config: ConfigValue[];
  /** Checkpoints in order of step; `best_model` and `final` last. */
  snapshots: SnapshotRow[];
  signals: SignalNote[];
  /** Why it failed. */
  reason?: string;
  /** The command that would do the same again. */
  commandLine: string;
  /** The command that goes on from the newest checkpoint; absent while it runs or where nothing was saved. */
  resumeCommand?: string;
  canStop: boolean;
  canResume: boolean;
  versions: Record<string, unknown>;
  /** Files in the run's folder (not inside checkpoints). */
  files: { name: string; bytes: number; modified: number }[];
  /** Whether GET /api/runs/:id/report answers with the run's HTML report. */
  hasReport: boolean;
  /** Names of the metrics, in the order in which they should be drawn. */
  metricNames: string[];
  process?: { host: string; pid: number };
  ended?: number;
}

export interface ConfigValue {
  /** snake_case, as in the run's config.json. */
  name: string;
  value: unknown;
  group?: string;
  description?: string;
  default?: unknown;
  /** The value is not the default. */
  changed: boolean;
}

export interface SnapshotRow {
  /** step-100, final, best_model */
  name: string;
  step?: number;
  bytes: number;
  modified: number;
  /** Quantised copies inside it. */
  quantised: string[];
  /** What to give as a model: to chat, to evaluate, to train further. */
  model: string;
}

/** What the metrics say, in words, and why it matters. */
export interface SignalNote {
  kind: string;
  /** note: normal, although it may not look so. warning: something to act on. */
  level: 'note' | 'warning';
  step: number;
  /** The last step before what it tells of. */
  before?: number;
  message: string;
  /** The metrics it is about. */
  metrics: string[];
}

/** GET /api/runs/:id/metrics?names=a,b&x=step|examples|tokens|time&points=1000&from=&to= */
export interface MetricsAnswer {
  x: MetricAxis;
  /** One per name that the run has. */
  series: MetricSeries[];
  /** Step of the newest row: give it as Last-Event-ID to go on with events. */
  lastStep: number;
  /** Rows in all, before down-sampling. */
  rows: number;
}
export type MetricAxis = 'step' | 'examples' | 'tokens' | 'time';

/**
 * A down-sampled series: of each bucket the first, smallest, largest and last points are kept, so that peaks and ends
 * are exact. `x`, `y` and `step` have the same length.
 */
export interface MetricSeries {
  name: string;
  x: number[];
  /** null: the value was not finite. */
  y: (number | null)[];
  step: number[];
  /** Exact newest value. */
  last: number | null;
  /** Over all rows, whatever was asked for. */
  min: number | null;
  max: number | null;
}

/** One row as it was logged: GET /api/runs/:id/events, event `metrics`. */
export interface MetricPoint {
  step: number;
  time: number;
  [name: string]: number | null;
}

/**
 * GET /api/runs/:id/events (server-sent events). `id:` is the step of the last row sent, so that a browser that comes
 * back resumes where it was. Without Last-Event-ID (or ?after=STEP) only new rows come. Comments (`: beat`) keep the
 * connection alive.
 */
export interface RunEvents {
  /** Rows after the last one sent. */
  metrics: { rows: MetricPoint[] };
  /** Sent at once, then when it changes. `rewound`: the run was resumed from an earlier step; read metrics anew. */
  state: { state: RunState; step: number; totalSteps?: number; updated: number; rewound?: boolean };
  /** New lines of the console. */
  console: { lines: string[] };
}

/** GET /api/runs/:id/console?lines=200 */
export interface ConsoleAnswer {
  lines: string[];
  /** Lines before the first of these were left out. */
  truncated: boolean;
}

/** POST /api/runs/:id/stop: the run saves a checkpoint and ends, as on Ctrl-C. */
export interface StopAnswer {
  asked: boolean;
}
/** POST /api/runs/:id/resume */
export interface ResumeAnswer {
  runId: string;
  commandLine: string;
}
/** POST /api/runs/:id/tag. A leading `-` takes a tag off. */
export interface TagRequest {
  tags: string[];
}
export interface TagAnswer {
  tags: string[];
}

/** POST /api/delete, first step: what would go. */
export interface DeleteAsk {
  /** Runs, whole. */
  ids?: string[];
  /** Single snapshots. */
  snapshots?: { id: string; name: string }[];
}
export interface DeletePlan {
  paths: { path: string; bytes: number }[];
  bytes: number;
  /** Give it back with the word to delete exactly these. */
  confirm: string;
}
/** POST /api/delete, second step. */
export interface DeleteConfirm {
  confirm: string;
  /** Must be DELETE. */
  word: string;
}
export interface DeleteAnswer {
  removed: string[];
  /** What had changed since it was shown is kept. */
  left: { path: string; why: string }[];
  bytes: number;
}

/** POST /api/compare */
export interface CompareRequest {
  ids: string[];
}
export interface CompareAnswer {
  runs: { id: string; name: string }[];
  /** Options that differ: one value per run, in the order of `runs`. */
  options: { name: string; values: unknown[] }[];
  /** Last value of every metric. */
  metrics: { name: string; values: (number | null)[] }[];
}
