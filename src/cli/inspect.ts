/**
 * attune inspect MODEL [--json]
 * attune inspect MODEL --ids 1,2,3 --save-logits out.safetensors
 */
import { existsSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import type { Command } from 'commander';
import { z } from 'zod';
import { UserError } from '../errors.ts';
import { refuseExisting } from '../existing-file.ts';
import {
  deviceOf,
  type Inspection,
  inspectModel,
  loadModel,
  type MemoryEstimate,
  type Model,
  packSequences,
} from '../models/index.ts';
import { field, withRules } from '../runs/index.ts';
import { noGrad, scope, tensor, writeSafetensors } from '../tensor/index.ts';
import { registerCommand } from './options/command.ts';
import { deviceField, jsonField, modelField } from './options/model-fields.ts';
import { checkOutputFile } from './options/outputs.ts';
import { consoleProgress } from './terminal/console.ts';
import { print, printJson } from './terminal/print.ts';

const memoryGroup = 'Memory';
const logitsGroup = 'Logits';

const inspectOptions = z.object({
  model: modelField,
  dtype: field(z.enum(['float32', 'bfloat16', 'float16']).optional(), {
    description: 'to load and train in; as stored when left out',
    group: 'Model',
  }),
  device: deviceField,
  json: jsonField,
  tokens: field(z.number().int().positive().default(8192), {
    description: 'tokens that go through at once in training',
    group: memoryGroup,
  }),
  gradientCheckpointing: field(z.boolean().default(false), { description: 'count with it', group: memoryGroup }),
  loraR: field(z.number().int().positive().default(16), {
    description: 'rank of the adapters that are counted with',
    group: memoryGroup,
  }),
  loraTargetModules: field(z.string().optional(), {
    description: "comma-separated, or all-linear; the family's when left out",
    group: memoryGroup,
  }),
  ids: field(z.array(z.number().int().min(0)).min(1).optional(), {
    description: 'token ids; loads the model and computes their logits',
    group: logitsGroup,
  }),
  saveLogits: field(z.string().optional(), {
    description: 'file for them, as safetensors: input_ids, logits, scores of a head',
    group: logitsGroup,
  }),
  overwrite: field(z.boolean().default(false), { description: 'replace an existing file', group: logitsGroup }),
});

export const inspectSchema = withRules(inspectOptions, [
  { options: ['device'], unread: ({ ids }) => ids === undefined, because: 'nothing is computed without --ids' },
]);

type Config = z.output<typeof inspectSchema>;

export function register(program: Command): void {
  registerCommand(program, {
    name: 'inspect',
    description: 'architecture, size and memory of a model: a folder, an adapter, a run, or a name on the hub',
    schema: inspectSchema,
    words: ['model'],
    examples: ['attune inspect models/tiny', 'attune inspect Qwen/Qwen3-0.6B --tokens 16384 --gradient-checkpointing'],
    run: inspect,
  });
}

async function inspect(config: Config): Promise<void> {
  const progress = consoleProgress();
  const { model: name, ids, saveLogits: path, dtype, tokens, gradientCheckpointing: checkpointing } = config;
  if ((ids === undefined) !== (path === undefined))
    throw new UserError('--ids and --save-logits go together: the ids to compute, and the file for their logits.');
  if (path !== undefined) checkLogitsFile(path, config.overwrite);
  else if (config.overwrite) throw new UserError('--overwrite: there is no file without --save-logits.');
  const lora = { r: config.loraR, targetModules: config.loraTargetModules };
  const found = await inspectModel(name, { progress, dtype, tokens, checkpointing, lora });
  if (config.json) printJson(found, 2);
  else print(inspectionText(found));
  if (ids === undefined || path === undefined) return;
  using model = await loadModel(name, { progress, dtype, device: deviceOf(config.device) });
  saveLogits(model, ids, path);
  if (!config.json) print(`logits      of ${ids.length} tokens in ${path}`);
}

/** Refuses to overwrite the model's own files: weights are memory-mapped. */
function checkLogitsFile(path: string, overwrite: boolean): void {
  checkOutputFile('--save-logits', path);
  if (existsSync(path) && existsSync(resolve(dirname(path), 'config.json')))
    throw new UserError(`--save-logits ${path} is a file of a model: an input is never written over. Name another.`);
  refuseExisting('--save-logits', path, { overwrite });
}

function saveLogits(model: Model, ids: number[], path: string): void {
  const { vocabSize } = model.decoder.spec;
  const unknown = ids.find((id) => id >= vocabSize);
  if (unknown !== undefined)
    throw new UserError(`--ids: there is no token ${unknown}; the vocabulary ends at ${vocabSize - 1}.`);
  scope(() =>
    noGrad(() => {
      const hidden = model.decoder.forward(packSequences([ids]));
      writeSafetensors(path, [
        ['input_ids', tensor(ids, { dtype: 'int64' })],
        ...(model.decoder.weights.lm ? [['logits', model.decoder.logits(hidden).to('float32')] as const] : []),
        ...(model.head === null ? [] : [['scores', model.head.forward(hidden)] as const]),
      ]);
    }),
  );
}

/** What a model is, in lines for people. */
export function inspectionText(found: Inspection): string {
  const { parameters, memory, tokenizer, adapter } = found;
  const parts = (['embedding', 'attention', 'mlp', 'norms', 'head', 'adapters'] as const).filter(
    (part) => parameters[part],
  );
  const stored = Object.entries(found.storedBytes).map(([dtype, bytes]) => `${size(bytes)} of ${dtype}`);
  const batch = `${thousands(memory.tokens)} tokens at once${memory.checkpointing ? ', gradient checkpointing' : ''}`;
  const lines: [string, string][] = [
    ['model', found.name],
    ['family', `${found.family}${found.architectures.length > 0 ? ` (${found.architectures.join(', ')})` : ''}`],
    ...(adapter === null ? [] : ([['adapter', describeAdapter(adapter)]] as [string, string][])),
    ['parameters', thousands(parameters.total)],
    ...parts.map((part): [string, string] => [
      '',
      `${part.padEnd(10)} ${thousands(parameters[part]).padStart(15)}  ${((100 * parameters[part]) / parameters.total).toFixed(1).padStart(5)} %`,
    ]),
    [
      'shape',
      `${found.layers} layers of ${found.hiddenSize}, vocabulary ${thousands(found.vocabSize)}${found.tied ? ', head tied to the embedding' : ''}`,
    ],
    ['attention', found.attention],
    ['positions', found.positions],
    ['context', `${thousands(found.contextTokens)} tokens`],
    ...(found.head === null ? [] : ([['head', found.head]] as [string, string][])),
    ['dtype', `${found.dtype}${stored.length > 0 ? `; on disk ${stored.join(', ')}` : ''}`],
    [
      'to load',
      found.quantised === null
        ? `${size(memory.loadBytes)}; ${size(memory.quantisedBytes.int8)} with int8 weights, ${size(memory.quantisedBytes.int4)} with int4`
        : `${size(memory.loadBytes)}; its weights are ${found.quantised}`,
    ],
    [
      'to train',
      found.quantised === null
        ? `${describeMemory(memory.train)}, ${batch}`
        : `only with LoRA, for its weights are ${found.quantised}; ${batch}`,
    ],
    [
      'with LoRA',
      `${describeMemory(memory.lora)}; r ${memory.lora.r} on ${memory.lora.targetModules.join(', ')}: ${thousands(memory.lora.trainable)} trained`,
    ],
    ...(found.quantised === null
      ? ([
          [
            'with QLoRA',
            `about ${size(memory.qlora.int8.totalBytes)} in int8, ${size(memory.qlora.int4.totalBytes)} in int4`,
          ],
        ] as [string, string][])
      : []),
    ['tokenizer', tokenizer === null ? 'none in the folder' : describeTokenizer(tokenizer)],
  ];
  return lines.map(([label, text]) => `${label.padEnd(12)}${text}`).join('\n');
}

function describeAdapter(adapter: NonNullable<Inspection['adapter']>): string {
  const { base, r, alpha, targetModules, dora } = adapter;
  const names = targetModules.length > 8 ? `${targetModules.length} modules` : targetModules.join(', ');
  return `${dora ? 'DoRA' : 'LoRA'} r ${r}, alpha ${alpha} on ${names}; base ${base}`;
}

function describeMemory(memory: MemoryEstimate): string {
  const { totalBytes, weightBytes, optimizerBytes, activationBytes } = memory;
  return `about ${size(totalBytes)}: weights ${size(weightBytes)}, gradients and optimiser ${size(optimizerBytes)}, activations ${size(activationBytes)}`;
}

function describeTokenizer(tokenizer: NonNullable<Inspection['tokenizer']>): string {
  const special = Object.entries(tokenizer.special).map(([name, token]) => `${name} ${token ?? 'none'}`);
  const ends = tokenizer.endOfTurn.join(' ');
  return `${thousands(tokenizer.vocabSize)} tokens; ${special.join(', ')}; a turn ends at ${ends || 'nothing'}; chat template: ${tokenizer.chatTemplate ? 'yes' : 'no'}`;
}

function size(bytes: number): string {
  for (const [unit, name] of [
    [2 ** 30, 'GiB'],
    [2 ** 20, 'MiB'],
  ] as const)
    if (bytes >= unit) return `${(bytes / unit).toFixed(bytes >= 100 * unit ? 0 : 1)} ${name}`;
  return bytes < 1024 ? `${bytes} B` : `${(bytes / 1024).toFixed(1)} KiB`;
}

const thousands = (value: number) => value.toLocaleString('en-US');
