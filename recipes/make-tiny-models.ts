/**
 * Tiny random models of four families with a tokenizer, and preference pairs from arithmetic tasks, so that the recipes run
 * anywhere in seconds:
 *
 *     npm run recipe -- recipes/make-tiny-models.ts [folder]              (recipes/tiny when left out; git ignores it)
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { initModel, saveModel } from '../src/models/index.ts';
import { gradedRows, preferenceRows } from '../src/tasks/index.ts';
import { trainBpe } from '../src/text/index.ts';

const folder = process.argv[2] ?? join(import.meta.dirname, 'tiny');
const tasks = 'chain_sum:1,gcd:1,spell_backward:1';
const pairs = [...preferenceRows({ tasks, seed: 1, count: 240, style: 'answer' })];
const judged = [...gradedRows({ tasks, seed: 2, count: 240, style: 'answer' })].map(
  ({ prompt, completion, correct }) => ({
    prompt,
    completion,
    label: correct,
  }),
);

const rope = { hidden_size: 48, intermediate_size: 96, num_hidden_layers: 2, num_attention_heads: 4 };
const families: Record<string, Record<string, unknown>> = {
  qwen3: { model_type: 'qwen3', ...rope, num_key_value_heads: 2, head_dim: 12, tie_word_embeddings: true },
  llama: { model_type: 'llama', ...rope, num_key_value_heads: 2, tie_word_embeddings: false },
  gpt2: { model_type: 'gpt2', n_embd: 48, n_layer: 2, n_head: 4, n_positions: 512 },
  pythia: { model_type: 'gpt_neox', ...rope, rotary_pct: 0.25, use_parallel_residual: true },
};

const jsonl = (rows: readonly unknown[]) => rows.map((row) => `${JSON.stringify(row)}\n`).join('');

mkdirSync(folder, { recursive: true });
writeFileSync(join(folder, '.gitignore'), '*\n');
writeFileSync(join(folder, 'pairs.jsonl'), jsonl(pairs));
writeFileSync(join(folder, 'judged.jsonl'), jsonl(judged));
const texts = pairs.flatMap(({ prompt, chosen, rejected }) => [prompt, chosen, rejected]);
for (const [name, config] of Object.entries(families)) {
  const out = join(folder, name);
  const tokenizer = await trainBpe(texts, { out, vocabSize: 400 });
  const ids = { vocab_size: tokenizer.vocabSize, eos_token_id: tokenizer.eosId, pad_token_id: tokenizer.padId };
  using model = initModel(
    { ...config, ...ids, bos_token_id: null, max_position_embeddings: 512, initializer_range: 0.05, dtype: 'float32' },
    { seed: 1, source: name },
  );
  saveModel(model, out);
}
console.log(`${folder}: ${Object.keys(families).join(', ')}; pairs.jsonl, judged.jsonl`);
