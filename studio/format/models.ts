/** A model's path or name as far as people need it: `grpo/chain-sum/final` of a long path, `Qwen/Qwen3-0.6B` whole. */
export function shortModel(model: string): string {
  const parts = model.split('/').filter(Boolean);
  const isCheckpoint = /^(final|best_model|(step|checkpoint)-\d+)$/.test(parts.at(-1) ?? '');
  return parts.slice(isCheckpoint ? -3 : -2).join('/');
}
