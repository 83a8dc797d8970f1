/** The report of exploring a dataset, for `attune explore` and the studio's Data page. */
import type { Summary } from './summary.ts';

export interface Exploration {
  dataset: string;
  shape: string;
  rows: number;
  examples: number;
  bad_rows: number;
  left_out: Record<string, number>;
  /** By part ("prompt", "chosen", …): characters and words; with a tokenizer, tokens of whole sequences. */
  statistics: {
    characters: Record<string, Summary>;
    words: Record<string, Summary>;
    turns: Summary;
    /** Statistics of solutions with labelled steps. */
    steps_per_solution?: Summary;
    length_difference?: Summary;
    tokens?: Summary & { max_length: number; share_over_max_length: number };
    sources?: Record<string, number>;
  };
  patterns: {
    length_bias?: LengthBias;
    verbosity?: Verbosity;
    conversation_depth: ConversationDepth;
    /** Frequency of each label, on responses (KTO, graded) or on steps. */
    label_balance?: Record<string, { count: number; share: number }>;
  };
  openings: Record<string, { text: string; count: number }[]>;
  samples: { prompt: string; responses: Record<string, string> }[];
  warnings: string[];
}

export interface LengthBias {
  chosen_longer: number;
  rejected_longer: number;
  equal: number;
  mean_difference_characters: number;
  median_difference_characters: number;
  /** Mean difference over its standard deviation; about 0 if length carries no information. */
  effect_size: number;
  biased: boolean;
}

export interface Verbosity {
  chosen_mean_words: number;
  rejected_mean_words: number;
  ratio: number;
}

export interface ConversationDepth {
  mean_turns: number;
  max_turns: number;
  single_turn: number;
  by_turns: Record<string, { examples: number; chosen_longer?: number }>;
}
