/** How the hidden size divides into attention heads, and heads into groups that share keys and values. */
import type { ConfigReader } from './spec.ts';

/** The head size if the config does not give it: the hidden size divided by the number of heads. */
export function headSize(config: ConfigReader, heads: number, hiddenSize: number): number {
  if (hiddenSize % heads !== 0) {
    config.fail('num_attention_heads', `(${heads}) must divide the hidden size (${hiddenSize})`);
  }
  return hiddenSize / heads;
}

/** The number of key-value heads, which must divide the number of query heads. */
export function groupedHeads(config: ConfigReader, field: string, heads: number, kvHeads: number): number {
  if (heads % kvHeads !== 0) config.fail(field, `(${kvHeads}) must divide the number of attention heads (${heads})`);
  return kvHeads;
}

/** No sliding window in any layer. */
export const unlimited = (layers: number): null[] => Array.from({ length: layers }, () => null);
