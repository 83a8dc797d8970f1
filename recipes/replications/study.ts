/**
 * What a replication is: jobs of one condition and one seed each, which give a few numbers, and a report over all of them.
 * Everything that a reader needs to judge it (what was published, what differs here) stands beside the code that runs it.
 */
import { meanOf } from '../../src/algorithms/index.ts';
import type { Chart } from '../../src/runs/plots/plots.ts';

/** What a job measured: numbers, and curves as lists. Small enough to be kept in the repository. */
export type Values = Record<string, number | number[]>;

export interface Outcome {
  condition: string;
  seed: number;
  seconds: number;
  /** Empty where it failed. */
  values: Values;
  /** What became of a training that did not come to its end. */
  failed?: string;
  /** Where it was run, if not on the machine of the others; its seconds then do not count. */
  elsewhere?: string;
}

/** What a job is given. */
export interface Lab {
  seed: number;
  /** Everything that the job writes goes here; removed after it. */
  folder: string;
  /** The model that ships with attune. */
  model: string;
  /**
   * A folder that several jobs of a study need: found if one of them has made it, otherwise made here. Other processes wait
   * for the one that makes it.
   */
  shared: (name: string, make: (folder: string) => Promise<void>) => Promise<string>;
}

/** A statement of the paper that our numbers bear out or do not. */
export interface Finding {
  claim: string;
  holds: boolean;
  numbers: string;
}

export interface Table {
  head: readonly string[];
  rows: readonly (readonly string[])[];
}

export interface Report {
  findings: readonly Finding[];
  tables: readonly { caption: string; table: Table }[];
  charts: readonly Chart[];
}

export interface Study {
  /** Folder in recipes/replications, and the word on the command line. */
  name: string;
  title: string;
  paper: { name: string; url: string };
  /** What was published, with its figures. */
  published: string;
  /** What we do, and what differs. */
  ours: string;
  /** What we read from the outcome; written once the numbers were there. */
  reading: string;
  conditions: readonly string[];
  seeds: readonly number[];
  run: (condition: string, lab: Lab) => Promise<Values>;
  report: (outcomes: Outcomes) => Report;
}

/** The outcomes of a study, asked for by condition. */
export class Outcomes {
  /** Those with numbers. */
  readonly all: readonly Outcome[];
  readonly failed: readonly Outcome[];

  constructor(outcomes: readonly Outcome[]) {
    this.all = outcomes.filter(({ failed }) => failed === undefined);
    this.failed = outcomes.filter(({ failed }) => failed !== undefined);
  }

  of(condition: string): Outcome[] {
    return this.all.filter((outcome) => outcome.condition === condition).sort((a, b) => a.seed - b.seed);
  }

  /** One number per seed. */
  numbers(condition: string, name: string): number[] {
    return this.of(condition).map(({ values }) => values[name] as number);
  }

  /** One curve per seed. */
  curves(condition: string, name: string): number[][] {
    return this.of(condition).map(({ values }) => values[name] as number[]);
  }

  /** The curves of a condition for a chart, over the mean of `over` at each of their places. */
  line(condition: string, name: string, over = 'd'): { name: string; x: number[]; runs: number[][] } {
    const places = this.curves(condition, over);
    const x = (places[0] ?? []).map((_, i) => meanOf(places.map((run) => run[i] as number)));
    return { name: condition, x, runs: this.curves(condition, name) };
  }
}
