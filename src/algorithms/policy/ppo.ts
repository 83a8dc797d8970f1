/**
 * −min(rA, clip(r)A) + valueCoef·½max((G−V)², (G−Vclip)²) − entropyCoef·H, with Vclip = Vold + clip(V − Vold,
 * ±valueClip) and G = A + Vold, taken before whitening.
 */
import { AttuneError } from '../../errors.ts';
import { noGrad } from '../../tensor/index.ts';
import { clippedSurrogate } from './clipping.ts';
import { definePolicyAlgorithm, type TermInput, type Terms } from './policy.ts';

/** PPO (Schulman et al. 2017): the clipped surrogate with a value head, GAE, and the KL in the reward. */
export const ppo = definePolicyAlgorithm({
  name: 'ppo',
  summary: 'clipped surrogate with a learned value, token-wise advantages and the KL in the reward',
  paper: 'Schulman et al. 2017, "Proximal Policy Optimization Algorithms"; Ziegler et al. 2019 for language models',
  advantage: 'gae',
  aggregation: 'token',
  klIn: 'reward',
  needsValue: true,
  defaults: {
    klCoef: 0.01,
    clipLow: 0.2,
    clipHigh: 0.2,
    valueCoef: 0.5,
    valueClip: 0.2,
    gamma: 1,
    lambda: 0.95,
    whiten: true,
    ppoEpochs: 4,
    adaptiveKl: false,
  },
  terms: (input) => ({
    ...clippedSurrogate(input.ratio, input.advantages, input.options.clipLow, input.options.clipHigh),
    ...valueTerms(input),
  }),
});

function valueTerms({ values, valuesOld, returns, options }: TermInput): Pick<Terms, 'value' | 'valueClipped'> {
  if (values === undefined || valuesOld === undefined || returns === undefined) {
    throw new AttuneError('PPO’s loss needs "values", "valuesOld" and "returns" in its batch.');
  }
  const near = valuesOld.add(values.sub(valuesOld).clamp(-options.valueClip, options.valueClip));
  const free = values.sub(returns).square();
  const bound = near.sub(returns).square();
  return {
    value: free.maximum(bound).mul(0.5 * options.valueCoef),
    valueClipped: noGrad(() => bound.gt(free).to(values.dtype)),
  };
}
