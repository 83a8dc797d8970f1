/**
 * The results of `attune quantize`, as in evaluation_results.json. There, the quantised model's part is named
 * `quantized_int8` or `quantized_int4`.
 */
import type { QuantType } from '../../models/index.ts';
import type { Progress } from '../../progress.ts';
import type { RewardType } from '../../rewards/index.ts';
import type { LayerLoss } from './layers.ts';

/** Progress and signal of a quantisation. */
export interface QuantizeOptions {
  progress?: Progress;
  signal?: AbortSignal;
}

interface Size {
  size_bytes: number;
  size_mb: number;
}

export interface RewardMeasurement extends Size {
  accuracy: number;
  loss: number;
  examples: number;
  eval_seconds: number;
  examples_per_second: number;
}

/** The measurements of `quantizeReward`. */
export interface QuantizeRewardResults {
  model: string;
  type: RewardType;
  quant_type: QuantType;
  original: RewardMeasurement;
  quantized: RewardMeasurement;
  comparison: {
    accuracy_drop: number;
    accuracy_drop_relative_pct: number;
    loss_increase: number;
    size_reduction_pct: number;
    speedup_eval: number;
    score_correlation: number;
    score_rms_difference: number;
  };
  layers: LayerLoss[];
  model_saved: boolean;
}

/** The results as in the file, with the quantised model's part named by its type. */
export function namedByType(results: QuantizeRewardResults | QuantizePolicyResults): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(results).map(([name, value]) =>
      name === 'quantized' ? [`quantized_${results.quant_type}`, value] : [name, value],
    ),
  );
}

/** Both models' scores of one response. */
export interface ScorePair {
  original: number;
  quantised: number;
}

export interface PolicyMeasurement extends Size {
  /** Seconds for the same texts. */
  eval_seconds: number;
  eval_tokens_per_second: number;
  /** Tokens per second in responses to the same prompts. */
  generated_tokens_per_second: number;
}

export interface KlEvaluation {
  /** Mean of log p − log q per token that the original wrote: `mean_original_logprob` − `mean_quantized_logprob`. */
  kl_divergence: number;
  kl_standard_error: number;
  /** The same expectation, summed over the whole vocabulary at each position, which has less variance. */
  kl_exact: number;
  kl_exact_standard_error: number;
  mean_original_logprob: number;
  mean_quantized_logprob: number;
  /** Share of positions at which both models rank the same token first. */
  same_top_token: number;
  total_tokens: number;
  num_completions: number;
}

/** The measurements of `quantizePolicy`. */
export interface QuantizePolicyResults {
  model: string;
  quant_type: QuantType;
  original: PolicyMeasurement;
  quantized: PolicyMeasurement;
  kl_evaluation: KlEvaluation;
  comparison: { size_reduction_pct: number; speedup_eval: number; speedup_generation: number };
  layers: LayerLoss[];
  model_saved: boolean;
}
