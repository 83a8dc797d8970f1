/**
 * Writes adapters and whole models with the logits that attune computes for them, for peft_check.py to load with PEFT and
 * transformers:  node tests/models/peft-export.ts FOLDER
 */
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import {
  addLora,
  type LoraOptions,
  loadModelFolder,
  type Model,
  mergeAdapters,
  packSequences,
  saveModel,
} from '../../src/models/index.ts';
import { noGrad, scope, seed, tensor, writeSafetensors } from '../../src/tensor/index.ts';

const root = process.argv[2] as string;
const fixtures = join(import.meta.dirname, 'fixtures');
const ids = [
  [5, 9, 33, 12, 61, 7, 20, 44, 18, 3],
  [40, 4, 11, 8, 8, 52, 19, 30, 27, 66],
];

type Task = 'CAUSAL_LM' | 'SEQ_CLS' | 'TOKEN_CLS';

/** What transformers calls the logits: for each token, or for the last one of each sequence. */
function write(name: string, kind: 'adapter' | 'model', task: Task, base: string, model: Model): void {
  const folder = join(root, name);
  mkdirSync(folder, { recursive: true });
  saveModel(model, join(folder, 'saved'));
  scope(() =>
    noGrad(() => {
      const hidden = model.decoder.forward(packSequences(ids));
      const last = tensor([9, 19], { dtype: 'int64' });
      const logits =
        task === 'CAUSAL_LM'
          ? model.decoder.logits(hidden)
          : model.head?.forward(task === 'SEQ_CLS' ? hidden.indexSelect(0, last) : hidden);
      if (logits === undefined) throw new Error(`${name} has no head`);
      writeSafetensors(join(folder, 'ours.safetensors'), [
        ['input_ids', tensor(ids, { dtype: 'int64' })],
        ['logits', logits],
      ]);
    }),
  );
  const labels = model.head?.outputs;
  writeFileSync(join(folder, 'case.json'), JSON.stringify({ kind, task, base, labels }));
  model.dispose();
}

function base(name: string, task: Task): Model {
  const model = loadModelFolder(join(fixtures, name), { dtype: 'float32' });
  if (task === 'SEQ_CLS') model.addHead('reward', 1);
  if (task === 'TOKEN_CLS') model.addHead('classes', 3);
  return model;
}

/** As if it had been trained: everything that is trainable moves. */
function stir(model: Model): void {
  noGrad(() => {
    for (const [, parameter] of model.trainable()) scope(() => parameter.add_(parameter.clone().normal_(0, 0.2)));
  });
}

const adapters: [name: string, base: string, task: Task, options: LoraOptions][] = [
  ['lora-llama', 'llama', 'CAUSAL_LM', {}],
  ['lora-llama-all', 'llama-head-dim', 'CAUSAL_LM', { targetModules: 'all-linear', bias: 'all' }],
  [
    'lora-llama-some',
    'llama-head-dim',
    'CAUSAL_LM',
    { targetModules: ['q_proj', 'v_proj', 'up_proj'], bias: 'lora_only' },
  ],
  ['lora-llama-saved', 'llama', 'CAUSAL_LM', { modulesToSave: ['lm_head', 'embed_tokens'] }],
  ['lora-qwen3-rslora', 'qwen3', 'CAUSAL_LM', { useRslora: true, rankPattern: { v_proj: 2 } }],
  ['lora-qwen3-dora', 'qwen3-bias', 'CAUSAL_LM', { useDora: true, bias: 'all' }],
  ['lora-gpt2', 'gpt2', 'CAUSAL_LM', { bias: 'all' }],
  ['lora-gpt2-dora', 'gpt2', 'CAUSAL_LM', { useDora: true, bias: 'lora_only', targetModules: 'all-linear' }],
  ['lora-gpt_neo', 'gpt_neo', 'CAUSAL_LM', {}],
  ['lora-gptj', 'gptj', 'CAUSAL_LM', { bias: 'all' }],
  ['lora-gpt_neox', 'gpt_neox', 'CAUSAL_LM', { useDora: true }],
  ['lora-bloom', 'bloom', 'CAUSAL_LM', { bias: 'lora_only' }],
  ['lora-falcon', 'falcon-new-decoder', 'CAUSAL_LM', {}],
  ['lora-falcon-7b', 'falcon', 'CAUSAL_LM', { layersToTransform: [1] }],
  ['lora-olmo2', 'olmo2', 'CAUSAL_LM', { excludeModules: ['k_proj'] }],
  ['lora-mistral', 'mistral', 'CAUSAL_LM', { targetModules: '.*\\.(gate|down)_proj' }],
  ['lora-reward-llama', 'llama', 'SEQ_CLS', {}],
  ['lora-reward-qwen3', 'qwen3', 'SEQ_CLS', { useDora: true, targetModules: 'all-linear' }],
  ['lora-reward-gpt2', 'gpt2', 'SEQ_CLS', { bias: 'all' }],
  ['lora-reward-gpt_neox', 'gpt_neox', 'SEQ_CLS', {}],
  ['lora-classes-qwen2', 'qwen2', 'TOKEN_CLS', {}],
  ['lora-classes-gpt2', 'gpt2', 'TOKEN_CLS', {}],
];

seed(11);
for (const [name, from, task, options] of adapters) {
  const model = base(from, task);
  addLora(model, { r: 3, alpha: 5, ...options });
  stir(model);
  write(name, 'adapter', task, join(fixtures, from), model);
}
for (const [name, from, options] of [
  ['merged-llama', 'llama', {}],
  ['merged-gpt2-dora', 'gpt2', { useDora: true, bias: 'all' }],
] as [string, string, LoraOptions][]) {
  const model = base(from, 'CAUSAL_LM');
  addLora(model, { r: 3, alpha: 5, ...options });
  stir(model);
  mergeAdapters(model);
  write(name, 'model', 'CAUSAL_LM', '', model);
}
for (const name of readdirSync(fixtures)) {
  write(`model-${name}`, 'model', 'CAUSAL_LM', '', base(name, 'CAUSAL_LM'));
}
const families = [
  'gpt2',
  'gpt_neo',
  'gptj',
  'llama',
  'mistral',
  'qwen2',
  'qwen3',
  'olmo2',
  'gpt_neox',
  'bloom',
  'falcon',
  'falcon-alibi',
];
for (const name of families) {
  write(`reward-${name}`, 'model', 'SEQ_CLS', '', base(name, 'SEQ_CLS'));
}
for (const name of families.filter((family) => !/gptj|olmo2/.test(family))) {
  write(`classes-${name}`, 'model', 'TOKEN_CLS', '', base(name, 'TOKEN_CLS'));
}
