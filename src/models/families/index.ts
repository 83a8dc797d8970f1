/**
 * The decoder families, and which of them a config.json describes. A new family is one file in this folder and one line
 * here.
 *
 *   const { family, spec, names } = familyOf(JSON.parse(text), 'models/tiny/config.json');
 */
import { suggestion, UserError } from '../../errors.ts';
import { bloom } from './bloom.ts';
import { falcon } from './falcon.ts';
import { refuseForeignFields } from './foreign.ts';
import { gptNeo } from './gpt-neo.ts';
import { gptNeox } from './gpt-neox.ts';
import { gpt2 } from './gpt2.ts';
import { gptj } from './gptj.ts';
import { llama } from './llama.ts';
import { mistral } from './mistral.ts';
import { olmo2 } from './olmo2.ts';
import { qwen2 } from './qwen2.ts';
import { qwen3 } from './qwen3.ts';
import { Reader } from './reader.ts';
import type { DecoderSpec, Family, WeightNames } from './spec.ts';

export const families: readonly Family[] = [
  ...[gpt2, gptNeo, gptj, gptNeox, llama, mistral, qwen2, qwen3, olmo2, bloom, falcon],
];

/** The family that a config.json belongs to, and its contents. `source` names the config in messages. */
export function familyOf(config: object, source: string): { family: Family; spec: DecoderSpec; names: WeightNames } {
  if (typeof config !== 'object' || config === null) throw new UserError(`${source} must hold a JSON object.`);
  const type = (config as { model_type?: unknown }).model_type;
  const known = families.map((family) => family.modelType);
  if (typeof type !== 'string') {
    throw new UserError(`${source}: model_type is missing, so the family is not known. Known: ${known.join(', ')}.`);
  }
  const family = families.find((candidate) => candidate.modelType === type);
  if (!family) {
    const near = suggestion(type, known);
    throw new UserError(`${source}: model_type "${type}" is not supported.${near} Supported: ${known.join(', ')}.`);
  }
  const reader = new Reader(config, source, family.aliases);
  const spec = family.spec(reader);
  refuseForeignFields(reader);
  return { family, spec, names: typeof family.names === 'function' ? family.names(spec) : family.names };
}
