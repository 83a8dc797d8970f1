/**
 * Generalised advantage estimation over the tokens of a response (Schulman et al. 2016), on the host in doubles.
 *
 *   δ_t = r_t + γV_{t+1} − V_t,   A_t = Σ_k (γλ)^k δ_{t+k},   G_t = A_t + V_t
 *
 * with r_t = −klCoef·k1_t, plus R on the last token (Ziegler et al. 2019), and V = 0 after the last token.
 */
import { standardised } from './advantages.ts';

export interface GaeInput {
  /** One reward per response. */
  rewards: ArrayLike<number>;
  /** Response tokens of each; the packed arrays below hold that many values in turn. */
  lengths: ArrayLike<number>;
  /** V of the weights that sampled, per token. */
  values: ArrayLike<number>;
  /** lpOld − lpRef per token, where the KL is part of the reward. */
  k1?: ArrayLike<number>;
}

export interface GaeOptions {
  gamma: number;
  lambda: number;
  klCoef: number;
  /** Advantages of the whole step to mean 0 and spread 1; returns stay as they are. */
  whiten: boolean;
}

export interface TokenAdvantages {
  advantages: Float64Array;
  /** What the value head should say: unwhitened A + Vold. */
  returns: Float64Array;
}

export function gae(input: GaeInput, options: GaeOptions): TokenAdvantages {
  const { rewards, lengths, values, k1 } = input;
  const { gamma, lambda, klCoef, whiten } = options;
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
