/** Datasets: what they hold, and ratings of their pairs. */
import type { ChatMessage } from './chat.ts';

/** GET /api/data */
export interface DataList {
  datasets: DatasetRow[];
}
export interface DatasetRow {
  /** What to give as `dataset`: a path below the root, or a hub name. */
  dataset: string;
  name: string;
  source: 'folder' | 'hub' | 'votes' | 'ratings';
  bytes: number;
  modified: number;
  /** preference, prompts, messages, … where it was looked at. */
  shape?: string;
}

/** POST /api/data/explore → Job; its `result` is an Exploration. */
export interface ExploreRequest {
  dataset: string;
  split?: string;
  /** Rows to look at, at most; all unless given. */
  maxRows?: number;
  /** Adds token statistics. */
  model?: string;
}

/** Figures of one quantity. */

export type { Exploration } from '../../evaluate/explore-report.ts';
export type { Summary } from '../../evaluate/summary.ts';

/** GET /api/data/examples?dataset=&split=&q=&filter=longer|shorter|rated|unrated&offset=&limit=50 */
export interface ExamplesAnswer {
  dataset: string;
  shape: string;
  total: number;
  /** Rows of the set that were read: at most `readLimit`. */
  read: number;
  rows: DataExample[];
}
export interface DataExample {
  /** Its number in the dataset, from 0. */
  index: number;
  /** Hash of prompt, chosen and rejected: what a rating refers to. */
  pair?: string;
  prompt: ChatMessage[];
  /** chosen and rejected, completion, or the responses with their labels. */
  responses: { name: string; text: string; label?: string }[];
  source?: string;
  rating?: Rating;
}

/** POST /api/ratings */
export interface RatingRequest {
  dataset: string;
  split?: string;
  index: number;
  /** Hash of the pair that was shown; refused where the row holds another one by now. */
  pair?: string;
  /** Which of the two responses as they were shown (`first` says which came first) is better. */
  vote: RatingVote;
  /** Name of the response that was shown first: chosen or rejected. */
  first: 'chosen' | 'rejected';
  note?: string;
}
export type RatingVote = '1' | '2' | '=' | 'skip';
export interface Rating {
  index: number;
  vote: RatingVote;
  first: 'chosen' | 'rejected';
  /** The rater prefers what the dataset calls chosen; absent for ties and skips. */
  agrees?: boolean;
  note?: string;
  time: number;
}
/** Answer to a rating: what may be known only after the vote. */
export interface RatingAnswer {
  rating: Rating;
  tally: RatingTally;
  /** Reward model's scores of the two as shown, where one is loaded; only after the vote. */
  scores?: [number, number];
  /** Whether the reward model prefers the same. */
  modelAgrees?: boolean;
}
export interface RatingTally {
  rated: number;
  ties: number;
  skipped: number;
  /** Ratings of pairs that the dataset no longer holds, where there are any; they are in no other number. */
  lost?: number;
  /** Share of decided ratings that agree with the dataset. */
  agreement?: { value: number; low: number; high: number };
  /** Share of decided ratings that the loaded reward model agrees with. */
  modelAgreement?: { value: number; low: number; high: number };
}
/** GET /api/ratings?dataset=&split= */
export interface RatingsAnswer {
  ratings: Rating[];
  tally: RatingTally;
  /** Guidelines for raters: GUIDELINES.md beside the dataset, where there is one. */
  guidelines?: string;
  /** Index of the next pair without a rating. */
  next?: number;
}
/** POST /api/ratings/undo { dataset, split } takes back the newest rating. */
export interface UndoAnswer {
  undone?: Rating;
  tally: RatingTally;
}
/** POST /api/ratings/export { dataset, split } */
export interface ExportRatingsAnswer {
  /** The preference file, as a path that `--dataset` takes. */
  path: string;
  pairs: number;
  /** Ratings of pairs that the dataset no longer holds: they are left out. */
  lost?: number;
}
