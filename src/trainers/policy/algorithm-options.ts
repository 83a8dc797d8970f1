/**
 * The options that belong to an algorithm. They have no default here: each algorithm has its own, and an option that it
 * does not read is refused by name.
 */
import { z } from 'zod';
import {
  aggregations,
  type PolicyAlgorithm,
  type PolicyOptions,
  policyAlgorithm,
  policyOptions,
} from '../../algorithms/index.ts';
import { type FieldMeta, field } from '../../runs/index.ts';

const count = () => z.number().int().positive();
const share = () => z.number().min(0).max(1);
const amount = () => z.number().min(0);

/** The given value, or the algorithm's default. */
const orAlgorithms: FieldMeta['meaning'] = (value, { algorithm = 'grpo' }, name) =>
  value ?? policyOptions(policyAlgorithm(String(algorithm)))[name as keyof PolicyOptions];

/** All optional, named as in `PolicyOptions`, with the usual aliases. */
export function algorithmFields() {
  const of = <T extends z.ZodType>(type: T, description: string, aliases: string[] = []) =>
    field(type.optional(), {
      description: `${description}; the algorithm's own when left out`,
      group: 'Algorithm',
      aliases,
      // A resumed run may change numbers, but not the kind of estimate.
      ...(type instanceof z.ZodNumber ? {} : { fixed: 'value', meaning: orAlgorithms }),
    });
  return {
    klCoef: of(amount(), 'weight of the KL to the reference', ['beta']),
    klEstimator: field(z.enum(['k2', 'k3']).optional(), {
      description: "KL estimate in the loss; the algorithm's own when left out",
      group: 'Algorithm',
      fixed: 'value',
      meaning: orAlgorithms,
      elsewhere: { klEstimator: (value) => (value === 'kl2' ? 'k2' : value === 'kl3' ? 'k3' : value) },
    }),
    klTimesRatio: of(z.boolean(), 'multiply the KL term in the loss by the ratio, as DeepSeek-V3.2 and TRL do'),
    cliprange: of(amount(), 'clip the ratio to 1 ± this', ['clipRatio']),
    clipLow: of(amount(), 'clip the ratio from below at 1 − this', ['clipEpsLo']),
    clipHigh: of(amount(), 'clip the ratio from above at 1 + this', ['clipEpsHi']),
    aggregation: of(z.enum(aggregations), 'how token terms become one number'),
    entropyCoef: of(amount(), 'weight of the entropy bonus'),
    valueCoef: of(amount(), 'weight of the value loss', ['vfCoef']),
    valueClip: of(amount(), 'clip of the value', ['clipEpsVal']),
    gamma: of(share(), 'discount'),
    lam: of(share(), 'λ of the advantage estimate', ['lambda']),
    whiten: of(z.boolean(), 'whiten advantages over the step'),
    ppoEpochs: of(count(), 'passes over one batch of rollouts'),
    targetKl: of(amount(), 'end the passes when the KL to the sampling weights exceeds this'),
    adaptiveKl: of(z.boolean(), 'steer kl-coef towards kl-target'),
    dropEqualGroups: of(z.boolean(), 'leave out groups that are all right or all wrong'),
    overlongRamp: of(share(), 'penalty ramp before max-new-tokens, as a share of it'),
    tauPositive: of(amount(), "temperature of SAPO's gate where the advantage is positive"),
    tauNegative: of(amount(), 'the same where it is negative'),
    distillAs: of(
      z.enum(['loss', 'advantage']),
      "form of the teacher loss: loss is the KL over the whole vocabulary at every token; advantage is the teacher's log-prob of the sampled token minus the policy's",
    ),
  };
}

export type AlgorithmConfig = z.output<z.ZodObject<ReturnType<typeof algorithmFields>>> & { algorithm: string };

/** The algorithm of a config, with its options. */
export function algorithmOf(config: AlgorithmConfig): { algorithm: PolicyAlgorithm; options: PolicyOptions } {
  const algorithm = policyAlgorithm(config.algorithm);
  const { cliprange, clipLow = cliprange, clipHigh = cliprange, lam: lambda } = config;
  const { klCoef, klEstimator, klTimesRatio, aggregation, entropyCoef, valueCoef, valueClip, gamma, whiten } = config;
  const { ppoEpochs, targetKl, adaptiveKl, dropEqualGroups, overlongRamp, tauPositive, tauNegative, distillAs } =
    config;
  const options = policyOptions(algorithm, {
    klCoef,
    klEstimator,
    klTimesRatio,
    clipLow,
    clipHigh,
    aggregation,
    entropyCoef,
    valueCoef,
    valueClip,
    gamma,
    lambda,
    whiten,
    ppoEpochs,
    targetKl,
    adaptiveKl,
    dropEqualGroups,
    overlongRamp,
    tauPositive,
    tauNegative,
    distillAs,
  });
  return { algorithm, options };
}
