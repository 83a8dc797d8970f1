/**
 * Rotary positions in the two dialects of config.json. transformers 4: `rope_theta` beside `rope_scaling` {type | rope_type,
 * factor, …}, with a family's own names for the base and the share of the head. transformers 5: all in `rope_parameters`. A
 * field inside the object takes precedence over one beside it, as in transformers.
 */
import type { ConfigReader, RopeOptions, RopeScaling } from './spec.ts';

type Fields = Record<string, unknown>;

/** Fields of a rope object that transformers knows, and `finetuned`, a note in early YaRN checkpoints. */
const known = new Set([
  ...['rope_type', 'type', 'rope_theta', 'partial_rotary_factor', 'factor', 'original_max_position_embeddings'],
  ...['low_freq_factor', 'high_freq_factor', 'attention_factor', 'beta_fast', 'beta_slow', 'mscale', 'mscale_all_dim'],
  ...['truncate', 'finetuned'],
]);

export function readRope(config: ConfigReader, options: RopeOptions): ReturnType<ConfigReader['rope']> {
  const { name, fields } = ropeObject(config);
  const number = (key: string, fallback?: number) => numberIn(config, name, fields, key, fallback);

  const thetaField = options.thetaField ?? 'rope_theta';
  const theta = number('rope_theta', config.number(thetaField, options.thetaDefault ?? 10_000));
  if (theta <= 1) config.fail(fields.rope_theta === undefined ? thetaField : `${name}.rope_theta`, 'must be above 1');

  const share = options.partial
    ? number('partial_rotary_factor', config.number(options.partial.field, options.partial.fallback))
    : number('partial_rotary_factor', config.number('partial_rotary_factor', 1));
  if (!options.partial && share !== 1)
    config.fail('partial_rotary_factor', `is ${share}: this family turns whole heads`);
  if (options.partial) {
    // These names belong to other families; beside this family's own names they must repeat the same values.
    config.only('rope_theta', [theta], `this family's name for it is ${thetaField} (${theta})`);
    config.only('partial_rotary_factor', [share], `this family's name for it is ${options.partial.field} (${share})`);
  }
  const dim = Math.trunc(options.headDim * share);
  const rotaryDim = dim + (dim % 2);
  if (dim < 1 || rotaryDim > options.headDim) {
    config.fail('head_dim', `${options.headDim} × ${share} leaves no even number of dimensions to turn`);
  }
  const scaling = readScaling(config, name, fields, number, options.maxPositions);
  if (scaling?.kind === 'dynamic' && dim < 3)
    config.fail(`${name}.rope_type`, 'is "dynamic": needs 4 turning dimensions');
  return {
    theta,
    rotaryDim,
    ...(dim === rotaryDim ? {} : { exponentDim: dim }),
    ...(scaling ? { scaling } : {}),
  };
}

/** The one object that describes rope; if both dialects are present they must agree. */
function ropeObject(config: ConfigReader): { name: string; fields: Fields } {
  const scaling = objectOrNull(config, 'rope_scaling');
  const parameters = objectOrNull(config, 'rope_parameters');
  if (scaling && parameters) {
    for (const [key, value] of Object.entries(scaling)) {
      const other = parameters[key];
      if (other !== undefined && other !== value) {
        config.fail('rope_scaling', `and rope_parameters disagree about ${key}: ${value} and ${other}; remove one`);
      }
    }
  }
  const name = scaling || !parameters ? 'rope_scaling' : 'rope_parameters';
  const fields = scaling ?? parameters ?? {};
  for (const [key, value] of Object.entries(fields)) {
    if (typeof value === 'object' && value !== null) {
      config.fail(`${name}.${key}`, 'holds rope for one kind of layer: one rope for all layers is supported');
    }
    if (!known.has(key)) config.fail(`${name}.${key}`, `is not known. Known fields: ${[...known].join(', ')}`);
  }
  return { name, fields };
}

function readScaling(
  config: ConfigReader,
  name: string,
  fields: Fields,
  number: (key: string, fallback?: number) => number,
  maxPositions: number,
): RopeScaling | undefined {
  const type = fields.rope_type ?? fields.type ?? 'default';
  // Phi-3 keeps this outside the object; as in transformers, that value takes precedence.
  const originalMax = () => config.sizeOrNull('original_max_position_embeddings', null) ?? original();
  const original = () => number('original_max_position_embeddings', maxPositions);
  switch (type) {
    case 'default':
      return undefined;
    case 'linear':
      return { kind: 'linear', factor: number('factor') };
    case 'dynamic':
      return { kind: 'dynamic', factor: number('factor'), originalMax: maxPositions };
    case 'llama3':
      return {
        kind: 'llama3',
        factor: number('factor'),
        lowFrequencyFactor: number('low_freq_factor'),
        highFrequencyFactor: number('high_freq_factor'),
        originalMax: originalMax(),
      };
    case 'yarn': {
      const factor = fields.factor === null ? maxPositions / originalMax() : number('factor');
      const { truncate = true } = fields;
      if (typeof truncate !== 'boolean') config.fail(`${name}.truncate`, 'must be true or false');
      return {
        kind: 'yarn',
        factor,
        originalMax: originalMax(),
        betaFast: number('beta_fast', 32) || 32,
        betaSlow: number('beta_slow', 1) || 1,
        attentionFactor: number(
          'attention_factor',
          yarnTemperature(factor, number('mscale', 0), number('mscale_all_dim', 0)),
        ),
        truncate,
      };
    }
    default:
      return config.fail(
        `${name}.rope_type`,
        `is ${JSON.stringify(type)}: supported are default, linear, dynamic, llama3 and yarn`,
      );
  }
}

/** 0.1·ln(factor) + 1 (YaRN, equation 22), or the ratio of two such values if a checkpoint gives both weights. */
function yarnTemperature(factor: number, mscale: number, mscaleAllDim: number): number {
  const temperature = (weight: number) => (factor <= 1 ? 1 : 0.1 * weight * Math.log(factor) + 1);
  return mscale && mscaleAllDim ? temperature(mscale) / temperature(mscaleAllDim) : temperature(1);
}

function objectOrNull(config: ConfigReader, name: string): Fields | null {
  const value = config.optional(name);
  if (value === null) return null;
  if (typeof value !== 'object' || Array.isArray(value))
    config.fail(name, `must be an object, not ${JSON.stringify(value)}`);
  return Object.keys(value).length > 0 ? (value as Fields) : null;
}

/** A number in the object; null counts as absent, as in transformers. */
function numberIn(config: ConfigReader, object: string, fields: Fields, key: string, fallback?: number): number {
  const value = fields[key] ?? fallback;
  if (value === undefined) config.fail(`${object}.${key}`, 'is missing');
  if (typeof value !== 'number' || !Number.isFinite(value)) {
    config.fail(`${object}.${key}`, `must be a number, not ${JSON.stringify(value)}`);
  }
  return value;
}
