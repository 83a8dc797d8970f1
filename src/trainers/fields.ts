/**
 * Fields that every trainer's schema shares: the model and its dtype, the data and how they are read.
 *
 *     const schema = z.object({ ...runFields({ … }), ...modelFields({ model: 'Qwen/Qwen3-0.6B' }), ...dataFields(), … });
 */
import { z } from 'zod';
import type { ColumnNames } from '../data/index.ts';
import { columnRoles } from '../data/shapes/columns.ts';
import { precisions, quantTypes } from '../models/index.ts';
import { field } from '../runs/index.ts';

const model = 'Model';
const data = 'Data';
const positive = () => z.number().int().positive();

export function modelFields(defaults: { model: string }) {
  return {
    model: field(z.string().default(defaults.model), {
      description: 'the model: a folder, an adapter, a run or a hub name (org/name[@revision])',
      group: model,
      aliases: ['modelName'],
    }),
    tokenizer: field(z.string().optional(), {
      description: "folder or hub name of the tokenizer; the model's own when left out",
      group: model,
      fixed: 'model',
      meaning: (value, saved) => value ?? saved.model,
    }),
    dtype: field(z.enum(['auto', 'float32', 'bfloat16']).default('auto'), {
      description: 'how weights are held; auto is bfloat16 on a GPU and float32 on a CPU',
      group: model,
      elsewhere: { bf16: (value) => (value === true ? 'bfloat16' : value === false ? 'float32' : value) },
    }),
    device: field(z.string().default('auto'), {
      description: 'cpu, cuda:0, …; auto is the first GPU where there is one',
      group: model,
    }),
  };
}

/** For models that are not trained, such as a reference or a reward model. */
export const quantTypeField = (description: string, group: string) =>
  field(z.enum(quantTypes).optional(), { description, group, fixed: 'value' });

/** The precision in which a reward model scores. */
export const scoringPrecisionField = (group: string) =>
  field(z.enum(precisions).optional(), {
    description:
      "how an 8-bit reward model scores on an H100 or H200: exact (the default), or fast, which also rounds the products' inputs to 8 bits; elsewhere both are the same",
    group,
    fixed: 'value',
    meaning: (value) => value ?? 'exact',
  });

export interface DataDefaults {
  maxLength?: number;
  validationSplit?: number;
}

export function dataFields(defaults: DataDefaults = {}) {
  return {
    dataset: field(z.string().optional(), {
      description: 'file, folder or hub name',
      group: data,
      aliases: ['datasetName'],
    }),
    split: field(z.string().optional(), {
      description: "part of the dataset; the source's own train part",
      group: data,
      aliases: ['datasetSplit'],
    }),
    subset: field(z.string().optional(), { description: 'subset of a hub dataset', group: data }),
    evalDataset: field(z.string().optional(), {
      description: 'held-out data from elsewhere, in place of --validation-split',
      group: data,
    }),
    evalSplit: field(z.string().optional(), { description: 'part of --eval-dataset', group: data }),
    validationSplit: field(
      z
        .number()
        .min(0)
        .max(0.9)
        .default(defaults.validationSplit ?? 0.1),
      { description: 'share of the prompts held out for evaluation', group: data },
    ),
    subsetSize: field(positive().optional(), {
      description: 'train on this many examples, drawn under the seed',
      group: data,
      aliases: ['maxSamples', 'samples'],
    }),
    maxLength: field(positive().default(defaults.maxLength ?? 2048), {
      description: 'tokens; longer examples are skipped and counted',
      group: data,
      aliases: ['maxSeqLength'],
    }),
    promptFormat: field(z.enum(['auto', 'chat', 'transcript', 'raw']).default('auto'), {
      description: 'how a prompt becomes text; auto is the chat template where the tokenizer has one',
      group: data,
    }),
    columns: field(z.partialRecord(z.enum(columnRoles as [string, ...string[]]), z.string()).default({}), {
      description: 'which column plays which part',
      group: data,
      fileOnly: true,
    }),
    ...columnFields(),
    onBadRow: field(z.enum(['fail', 'skip']).default('fail'), {
      description: 'what to do with a bad row',
      group: data,
    }),
    tokenBudget: field(positive().optional(), {
      description: 'tokens per micro-batch, in place of --batch-size examples',
      group: data,
    }),
  };
}

/** The columns whose names vary most between datasets. Each has an option. */
const named = ['prompt', 'chosen', 'rejected', 'completion', 'label', 'messages', 'text'] as const;

type ColumnField = `${(typeof named)[number]}Column`;

/** The options that rename a column. */
export const columnOptions = named.map((role) => `${role}Column` as const);

function columnFields() {
  const entries = named.map((role) => [
    `${role}Column`,
    field(z.string().optional(), { description: `the column that holds the ${role}`, group: data }),
  ]);
  return Object.fromEntries(entries) as Record<ColumnField, z.ZodOptional<z.ZodString>>;
}

/** Merges the config file's `columns` with the `--x-column` options. */
export function columnsOf(
  config: { columns?: Partial<Record<string, string>> } & Partial<Record<ColumnField, string>>,
): ColumnNames {
  const columns = { ...config.columns } as ColumnNames;
  for (const role of named) {
    const name = config[`${role}Column`];
    if (name !== undefined) columns[role] = name;
  }
  return columns;
}
