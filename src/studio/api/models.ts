/** Models on this machine, and jobs: work that takes a while. */

/** GET /api/models */
export interface ModelList {
  models: ModelRow[];
}
export interface ModelRow {
  /** What to give wherever a model is asked for. */
  model: string;
  name: string;
  kind: 'base' | 'checkpoint' | 'adapter' | 'quantised' | 'reward';
  /** Where it lies. */
  place: 'hub cache' | 'folder' | 'run';
  /** Architecture as config.json names it. */
  architecture?: string;
  base?: string;
  quantType?: string;
  bytes: number;
  modified: number;
  /** The run that made it. */
  runId?: string;
}

/** GET /api/models/inspect?model= */
export interface ModelInspection {
  model: string;
  /** What `attune inspect --json` says. */
  facts: Record<string, unknown>;
  /** The same as text, as `attune inspect` prints it. */
  text: string;
}

/** POST /api/models/quantise */
export interface QuantiseRequest {
  model: string;
  kind: 'reward' | 'policy';
  quantType: 'int8' | 'int4';
  /** Further options of `attune quantize`, by camelCase name. */
  options?: Record<string, unknown>;
}
/** POST /api/models/export */
export interface ExportRequest {
  model: string;
  format: 'merged' | 'gguf';
  /** Below the root. */
  out: string;
  /** f32, f16, bf16, q8_0, q4_0 (gguf). */
  type?: string;
}

/** POST /api/models/serve: a job that runs until it is cancelled; its `result` is { url } once it answers. */
export interface ServeRequest {
  model: string;
  /** 8000 unless given; 0 takes a free one. */
  port?: number;
}

/** A piece of work of its own: GET /api/jobs, answers of explore, quantise, export, serve, start. */
export interface Job {
  id: string;
  kind: 'explore' | 'quantise' | 'export' | 'serve' | 'train' | 'load';
  title: string;
  state: 'running' | 'done' | 'failed' | 'cancelled';
  started: number;
  ended?: number;
  /** The command line, where it is a process. */
  commandLine?: string;
  progress?: { label: string; done: number; total?: number };
  /** The last lines of its console. */
  lines: string[];
  /** Why it failed. */
  error?: string;
  /** What came out: an Exploration, a path, a run. */
  result?: unknown;
  runId?: string;
}
/** GET /api/jobs/:id/events: event `job` with the whole Job at once and whenever it changes. POST /api/jobs/:id/cancel. */
export interface JobEvents {
  job: Job;
}
