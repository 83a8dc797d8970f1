/** A command's schema as the fields of a form: the same descriptions, defaults and choices as its help. */
import { z } from 'zod';
import { defaultValue, fieldKind, fieldMeta, inner, isRequired, kebabCase } from '../../runs/index.ts';
import type { TrainField, TrainSchema } from '../api/train.ts';
import { fieldsOf } from '../commands/command-line.ts';
import type { TrainVerb } from '../commands/verbs.ts';

/** What most runs set; the rest is folded away. */
const usual = new Set([
  ...[
    'model',
    'dataset',
    'task',
    'env',
    'agent',
    'algorithm',
    'teacher',
    'loss',
    'type',
    'rewardModelPath',
    'rewardModule',
    'lr',
    'epochs',
    'beta',
  ],
  ...['maxSteps', 'batchSize', 'gradAccum', 'groupSize', 'maxNewTokens', 'maxLength', 'klCoef', 'temperature', 'seed'],
  ...[
    'lora',
    'loraR',
    'quantType',
    'gradientCheckpointing',
    'saveTokens',
    'evalSteps',
    'saveSteps',
    'outputDir',
    'runName',
  ],
]);

export const picks: readonly [RegExp, TrainField['picks']][] = [
  [/^rewardModel(Path)?$/, 'reward-model'],
  [/^(model|refModel|teacher|tokenizer)$/, 'model'],
  [/^(dataset|evalDataset)$/, 'dataset'],
  [/^resumeFrom$/, 'run'],
  [/Dir$/, 'folder'],
  [/^task$/, 'task'],
];

/** Fields of one invocation of the command line, which a form has no use for. */
const left = new Set(['config', 'dryRun', 'json']);

export function trainSchema({ name, description, schema }: TrainVerb, values?: Record<string, unknown>): TrainSchema {
  const groups = new Map<string, TrainField[]>();
  for (const [field, type] of fieldsOf(schema)) {
    if (left.has(field)) continue;
    const { group = 'Options' } = fieldMeta(type);
    groups.set(group, [...(groups.get(group) ?? []), trainField(field, type)]);
  }
  return {
    command: name,
    description,
    groups: [...groups].map(([title, fields]) => ({ name: title, fields })),
    ...(values === undefined ? {} : { values }),
  };
}

function trainField(name: string, type: z.ZodType): TrainField {
  const { description, examples, names } = fieldMeta(type);
  const kind = fieldKind(type);
  const standard = defaultValue(type);
  const picked = picks.find(([pattern]) => pattern.test(name))?.[1];
  return {
    name,
    flag: `--${kebabCase(name)}`,
    description,
    required: isRequired(type),
    advanced: !usual.has(name),
    type: typeOf(kind),
    ...(standard === undefined ? {} : { default: standard }),
    ...(kind.kind === 'enum' ? { choices: kind.values } : {}),
    ...(names === undefined ? {} : { names: [...names] }),
    ...(examples === undefined ? {} : { examples: [...examples] }),
    ...(kind.kind === 'number' ? boundsOf(type) : {}),
    ...(picked === undefined ? {} : { picks: picked }),
  };
}

function typeOf(kind: ReturnType<typeof fieldKind>): TrainField['type'] {
  if (kind.kind === 'boolean') return 'switch';
  if (kind.kind === 'enum') return 'choice';
  if (kind.kind === 'list') return 'list';
  if (kind.kind === 'number') return kind.integer ? 'integer' : 'number';
  return 'text';
}

function boundsOf(type: z.ZodType): Pick<TrainField, 'min' | 'max'> {
  const core = inner(type);
  if (!(core instanceof z.ZodNumber)) return {};
  const { minValue, maxValue } = core;
  const real = (value: number | null) => value !== null && Number.isFinite(value) && Math.abs(value) < 2 ** 53 - 1;
  return {
    ...(real(minValue) ? { min: minValue as number } : {}),
    ...(real(maxValue) ? { max: maxValue as number } : {}),
  };
}
