/**
 * Options of single methods. A plain number applies to every method that reads the option; `ppo=0.02,grpo=0` sets it by
 * method. An option is refused if no chosen method reads it, or if it is given to a method that does not.
 */
import { z } from 'zod';
import { policyAlgorithm, preferenceLoss } from '../../algorithms/index.ts';
import { UserError } from '../../errors.ts';
import { field, kebabCase } from '../../runs/index.ts';
import { policySchema } from '../../trainers/policy/config.ts';
import { preferenceSchema } from '../../trainers/preference/config.ts';

export interface Method {
  name: string;
  /** The trainer it belongs to. */
  kind: 'policy' | 'preference';
}

interface MethodOption {
  kind: Method['kind'];
  description: string;
  /** The trainer's field, which validates the value. */
  field: string;
  /** The option's name in an algorithm's defaults. */
  reads: string;
  aliases?: string[];
}

export const methodOptions: Record<'klCoef' | 'clipRatio' | 'entropyCoef' | 'ppoEpochs' | 'beta', MethodOption> = {
  klCoef: { kind: 'policy', description: 'weight of the KL to the start', field: 'klCoef', reads: 'klCoef' },
  clipRatio: {
    kind: 'policy',
    description: 'clip the ratio to 1 ± this',
    field: 'cliprange',
    reads: 'clipLow',
    aliases: ['cliprange'],
  },
  entropyCoef: {
    kind: 'policy',
    description: 'weight of the entropy bonus',
    field: 'entropyCoef',
    reads: 'entropyCoef',
  },
  ppoEpochs: {
    kind: 'policy',
    description: 'passes over one batch of rollouts',
    field: 'ppoEpochs',
    reads: 'ppoEpochs',
  },
  beta: {
    kind: 'preference',
    description: 'strength of the KL constraint to the reference',
    field: 'beta',
    reads: 'beta',
    aliases: ['dpoBeta'],
  },
};

type OptionName = keyof typeof methodOptions;
type Given = string | number | undefined;
export type MethodOptionValues = Partial<Record<OptionName, Given>>;

const optionNames = Object.keys(methodOptions) as OptionName[];

const optionField = ({ kind, description, aliases }: MethodOption) =>
  field(z.union([z.number(), z.string()]).optional(), {
    description: `${kind === 'policy' ? 'policy methods' : 'preference losses'}: ${description}; each method's own when left out`,
    group: 'Methods',
    aliases,
    examples: kind === 'policy' ? ['0.1', 'ppo=0.1,grpo=0.2'] : ['0.1', 'dpo=0.1,ipo=0.5'],
  });

export const methodOptionFields = Object.fromEntries(
  optionNames.map((name) => [name, optionField(methodOptions[name])]),
) as Record<OptionName, ReturnType<typeof optionField>>;

const readsOption = ({ name, kind }: Method, option: MethodOption) => {
  if (kind !== option.kind) return false;
  const { defaults } = kind === 'policy' ? policyAlgorithm(name) : preferenceLoss(name);
  return option.reads in defaults;
};

const optionText = (name: OptionName) => `--${kebabCase(name)}`;

/** The trainer fields to set for a method. */
export function ownOptions(config: MethodOptionValues, method: Method): Record<string, number> {
  const own: Record<string, number> = {};
  for (const name of optionNames) {
    const option = methodOptions[name];
    const value = valuesOf(name, config[name]).get(method.name) ?? valuesOf(name, config[name]).get(everyReader);
    if (value !== undefined && readsOption(method, option)) own[option.field] = value;
  }
  return own;
}

const everyReader = '';

/** Values by method. A plain number has the key `everyReader`. */
function valuesOf(name: OptionName, given: Given): Map<string, number> {
  const values = new Map<string, number>();
  if (given === undefined) return values;
  for (const part of String(given).split(',')) {
    const [, method = everyReader, text = ''] = /^\s*(?:([^=]*?)\s*=)?\s*(.*?)\s*$/.exec(part) ?? [];
    const option = methodOptions[name];
    const shape = (option.kind === 'policy' ? policySchema.shape : preferenceSchema.shape) as Record<string, z.ZodType>;
    const value = text === '' ? Number.NaN : Number(text);
    const checked = (shape[option.field] as z.ZodType).safeParse(value);
    if (!checked.success)
      throw new UserError(
        `${optionText(name)} ${given}: "${part.trim()}" is not a value for it. Write a number, or one by method: ${optionText(name)} ppo=0.1,grpo=0.2.`,
      );
    const named = method.toLowerCase().replaceAll('_', '-');
    if (values.has(named))
      throw new UserError(
        `${optionText(name)} ${given}: ${named === everyReader ? 'every method' : named} has two values; a comparison takes one for each.`,
      );
    values.set(named, value);
  }
  return values;
}

/** Refuses options without effect before anything is loaded. */
export function checkMethodOptions(config: MethodOptionValues, methods: readonly Method[]): void {
  for (const name of optionNames) {
    const option = methodOptions[name];
    const readers = methods.filter((method) => readsOption(method, option)).map((method) => method.name);
    for (const named of valuesOf(name, config[name]).keys()) {
      if (named === everyReader ? readers.length > 0 : readers.includes(named)) continue;
      const list = methods.map((method) => method.name).join(', ');
      const reason =
        named === everyReader
          ? `has no effect on ${list}`
          : methods.some((method) => method.name === named)
            ? `has no effect on ${named}`
            : `names ${named}, which is not compared (--methods ${list})`;
      const which =
        readers.length > 0 ? ` Of these methods ${readers.join(', ')} read${readers.length === 1 ? 's' : ''} it.` : '';
      throw new UserError(`${optionText(name)} ${config[name]} ${reason}.${which}`);
    }
  }
}
