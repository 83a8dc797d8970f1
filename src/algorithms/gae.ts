/**
 * Generalised advantage estimation over the tokens of a response (Schulman et al. 2016), on the host in doubles.
 *
 *   δ_t = r_t + γV_{t+1} − V_t,   A_t = Σ_k (γλ)^k δ_{t+k},   G_t = A_t + V_t
 *
 * with r_t = −klCoef·k1_t, plus R on the last token (Ziegler et al. 2019), and V = 0 after the last token.
 */
import { UserError } from '../errors.ts';
import { standardised } from './advantages.ts';

/** The rewards and values of a step, for `gae`. */
export interface GaeInput {
  /** One reward per response. */
  rewards: ArrayLike<number>;
  /** Number of tokens of each response; the packed arrays below hold that many values for each in turn. */
  lengths: ArrayLike<number>;
  /** V per token, under the weights that sampled. */
  values: ArrayLike<number>;
  /** lpOld − lpRef per token, if the KL is part of the reward. */
  k1?: ArrayLike<number>;
}

/** γ, λ, the KL's weight in the reward, and whether advantages are whitened. */
export interface GaeOptions {
  gamma: number;
  lambda: number;
  klCoef: number;
  /** Scales the step's advantages to mean 0 and standard deviation 1. Returns are not scaled. */
  whiten: boolean;
}

/** One advantage and one return per response token, packed. */
export interface TokenAdvantages {
  advantages: Float64Array;
  /** The value head's target, A + Vold, before whitening. */
  returns: Float64Array;
}

/** Arrays of other lengths would give NaN, or the advantages of other tokens. */
function checkLengths({ rewards, lengths, values, k1 = values }: GaeInput): void {
  if (rewards.length !== lengths.length)
    throw new UserError(`gae: ${rewards.length} rewards for ${lengths.length} responses.`);
  const tokens = Array.from(lengths).reduce((sum, length) => sum + length, 0);
  if (values.length !== tokens) throw new UserError(`gae: ${values.length} values for ${tokens} tokens.`);
  if (k1.length !== tokens) throw new UserError(`gae: k1 has ${k1.length} numbers for ${tokens} tokens.`);
}

/** Advantages and returns of every token by generalised advantage estimation. */
export function gae(input: GaeInput, options: GaeOptions): TokenAdvantages {
  const { rewards, lengths, values, k1 } = input;
  const { gamma, lambda, klCoef, whiten } = options;
  checkLengths(input);
  const advantages = new Float64Array(values.length);
  let start = 0;
  for (let i = 0; i < lengths.length; i++) {
    const end = start + (lengths[i] as number);
    let next = 0;
    for (let t = end - 1; t >= start; t--) {
      const last = t === end - 1;
      const reward = (last ? (rewards[i] as number) : 0) - (k1 === undefined ? 0 : klCoef * (k1[t] as number));
      const delta = reward + (last ? 0 : gamma * (values[t + 1] as number)) - (values[t] as number);
      next = delta + gamma * lambda * next;
      advantages[t] = next;
    }
    start = end;
  }
  const returns = advantages.map((advantage, t) => advantage + (values[t] as number));
  return { advantages: whiten ? Float64Array.from(standardised(Array.from(advantages))) : advantages, returns };
}
