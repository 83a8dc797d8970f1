/** What a chapter's experiment is given and what it returns. */
import type { Progress } from '../../progress.ts';

export interface Lab {
  /** Everything that the experiment writes goes here. */
  folder: string;
  seed: number;
  /** The model that ships with attune, small enough for two cores. */
  model: string;
  print: (line: string) => void;
  progress?: Progress;
  signal?: AbortSignal;
}

export interface Curve {
  name: string;
  x: number[];
  y: number[];
}

export interface Figure {
  title: string;
  xLabel: string;
  yLabel: string;
  /** The y axis runs from 0 to 1. */
  share?: boolean;
  yScale?: 'linear' | 'log';
  /** Its numbers depend on the machine: it is drawn, and not compared with the stored one. */
  ofThisMachine?: boolean;
  curves: Curve[];
}

/** A statement that the run confirms or does not, with its numbers. */
export interface Finding {
  claim: string;
  holds: boolean;
  numbers: string;
}

export interface Outcome {
  figures: Figure[];
  findings: Finding[];
}

export interface Experiment {
  /** About how long it takes on two cores. */
  seconds: number;
  run: (lab: Lab) => Promise<Outcome>;
}
