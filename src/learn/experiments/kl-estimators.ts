/**
 * Chapter 6. Three estimates of KL(policy‖reference) from the policy's own samples, at growing distance, beside the exact value;
 * and what the two directions of the KL do to a model that cannot represent everything. The policy is the model at a temperature,
 * the reference the same model at temperature 1, so that the distance can be chosen.
 */
import { type KlEstimator, klTerms, meanOf, stdOf } from '../../algorithms/index.ts';
import { loadModel, loadTokenizer, type Model, packResponses, Sampler, tokenLogprobs } from '../../models/index.ts';
import { AdamW } from '../../nn/index.ts';
import { mixture } from '../../tasks/index.ts';
import { integers, noGrad, scope, type Tensor, tensor } from '../../tensor/index.ts';
import { ChatFormat } from '../../text/index.ts';
import type { Experiment, Figure, Lab } from './experiment.ts';

/** A flatter policy than the reference, and a sharper one, at growing distance. */
const flatter = [1.1, 1.2, 1.35, 1.5, 1.75, 2];
const sharper = [0.9, 0.8, 0.7, 0.6, 0.5, 0.4];
const estimators: readonly KlEstimator[] = ['k1', 'k2', 'k3'];
const prompts = 64;
const samples = 8;

/** Per temperature: the exact KL per token, and mean and spread of each estimator's single terms. */
interface Distance {
  exact: number;
  mean: Record<KlEstimator, number>;
  spread: Record<KlEstimator, number>;
}

export const klEstimators: Experiment = {
  seconds: 30,
  async run(lab) {
    const flat = await measure(lab, flatter);
    const sharp = await measure(lab, sharper);
    const fits = [fitted('reverse'), fitted('forward')] as const;
    const density: Figure = {
      title: 'One normal distribution fitted to two hills',
      xLabel: 'x',
      yLabel: 'density',
      curves: [
        { name: 'target', x: grid, y: grid.map(target) },
        ...fits.map(({ direction, mean, std }) => ({
          name: direction === 'reverse' ? 'KL(q||p): seeks a mode' : 'KL(p||q): covers all',
          x: grid,
          y: grid.map((x) => normal(x, mean, std)),
        })),
      ],
    };
    const near = flat[0] as Distance;
    const off = (k: KlEstimator, at: readonly Distance[]) => {
      const { mean, exact } = at.at(-1) as Distance;
      return Math.abs(mean[k] - exact) / exact;
    };
    const shares = (at: readonly Distance[]) =>
      estimators.map((k) => `${k} is off by ${(100 * off(k, at)).toFixed(0)} %`).join(', ');
    const [seeks, covers] = fits;
    return {
      figures: [
        estimates('Mean of each estimator, flatter policy', flat),
        estimates('Mean of each estimator, sharper policy', sharp),
        {
          title: 'Spread of one token’s estimate, flatter policy',
          xLabel: 'exact KL per token',
          yLabel: 'standard deviation',
          curves: estimators.map((k) => curve(k, flat, ({ spread }) => spread[k])),
        },
        density,
      ],
      findings: [
        {
          claim: 'near the reference k3 is far less noisy than k1',
          holds: near.spread.k3 < 0.7 * near.spread.k1,
          numbers: `standard deviation ${near.spread.k3.toFixed(3)} and ${near.spread.k1.toFixed(3)} at T = ${flatter[0]}`,
        },
        {
          claim: 'k1 and k3 are unbiased, k2 is not',
          holds: off('k1', flat) < 0.1 && off('k3', flat) < 0.1 && off('k2', flat) > 0.15,
          numbers: `at T = ${flatter.at(-1)}: ${shares(flat)}`,
        },
        {
          claim: 'a sharper policy hardly ever samples the rare tokens that k3’s mean lives on, and k3 is off',
          holds: off('k1', sharp) < 0.1 && off('k3', sharp) > 0.15,
          numbers: `at T = ${sharper.at(-1)}: ${shares(sharp)}`,
        },
        {
          claim: 'the reverse KL settles on one hill, the forward KL spreads over both',
          holds: Math.abs(seeks.mean) > 3 && Math.abs(covers.mean) < 1 && covers.std > 3 * seeks.std,
          numbers: `means ${seeks.mean.toFixed(2)} and ${covers.mean.toFixed(2)}, widths ${seeks.std.toFixed(2)} and ${covers.std.toFixed(2)}`,
        },
      ],
    };
  },
};

const curve = (name: string, distances: readonly Distance[], y: (at: Distance) => number) => ({
  name,
  x: distances.map(({ exact }) => exact),
  y: distances.map(y),
});

const estimates = (title: string, distances: readonly Distance[]): Figure => ({
  title,
  xLabel: 'exact KL per token',
  yLabel: 'estimate',
  curves: [
    curve('exact', distances, ({ exact }) => exact),
    ...estimators.map((k) => curve(k, distances, ({ mean }) => mean[k])),
  ],
});

async function measure(lab: Lab, temperatures: readonly number[]): Promise<Distance[]> {
  const tokenizer = await loadTokenizer(lab.model);
  using model = await loadModel(lab.model, { dtype: 'float32' });
  using sampler = new Sampler(model, { tokenizer });
  const chat = new ChatFormat(tokenizer);
  const problems = mixture('number_sorting:1,spell_backward:1');
  const asked = Array.from({ length: prompts }, (_, i) =>
    tokenizer.encode(chat.prompt([{ role: 'user', content: problems.example(lab.seed, i).prompt }])),
  );
  const bar = lab.progress?.start('sampling at each temperature', temperatures.length);
  const distances: Distance[] = [];
  for (const temperature of temperatures) {
    lab.signal?.throwIfAborted();
    const responses = await sampler.generate(
      asked.map((prompt, i) => ({
        prompt,
        samples,
        temperature,
        maxNewTokens: 64,
        stopIds: tokenizer.eosIds,
        seed: lab.seed * 1_000_000 + i * samples,
      })),
    );
    const sequences = responses.flatMap((group, i) =>
      group.map(({ ids }) => ({
        ids: Int32Array.from([...Array.from(asked[i] as ArrayLike<number>), ...ids]),
        promptLength: (asked[i] as ArrayLike<number>).length,
      })),
    );
    distances.push(distanceAt(model, sequences, temperature));
    bar?.advance();
  }
  bar?.done();
  return distances;
}

function distanceAt(model: Model, sequences: Parameters<typeof packResponses>[0], temperature: number): Distance {
  const { decoder } = model;
  return scope(() =>
    noGrad(() => {
      const packed = packResponses(sequences, decoder);
      const hidden = decoder.forward(packed.batch);
      const lpAt = (t: number) => tokenLogprobs(decoder, hidden, packed.batch, packed.tokens, t).logp;
      const [lp, lpRef] = [lpAt(temperature), lpAt(1)];
      const before = integers(packed.tokens.map((token) => token - 1));
      const logits = decoder.logits(hidden.indexSelect(0, before));
      const p = logits.div(temperature).logSoftmax(-1);
      const exact = p
        .exp()
        .mul(p.sub(logits.logSoftmax(-1)))
        .sum(-1);
      const terms = (k: KlEstimator) => klTerms(k, lp, lpRef).numbers();
      const each = <T>(of: (values: number[]) => T) =>
        Object.fromEntries(estimators.map((k) => [k, of(terms(k))])) as Record<KlEstimator, T>;
      return { exact: meanOf(exact.numbers()), mean: each(meanOf), spread: each(stdOf) };
    }),
  );
}

// —— Forward and reverse ————————————————————————————————————————————————————————————————————————————————

const grid = Array.from({ length: 241 }, (_, i) => -12 + i / 10);
const normal = (x: number, mean: number, std: number) =>
  Math.exp(-0.5 * ((x - mean) / std) ** 2) / (std * Math.sqrt(2 * Math.PI));
/** Two hills, the right one a little higher. */
const target = (x: number) => 0.45 * normal(x, -4, 0.8) + 0.55 * normal(x, 4, 0.8);

interface Fit {
  direction: 'forward' | 'reverse';
  mean: number;
  std: number;
}

/** Fits mean and width of a normal distribution q to the target p by gradient descent on one of the two divergences. */
function fitted(direction: 'forward' | 'reverse'): Fit {
  const mean = tensor([3]).requiresGrad_();
  const logStd = tensor([0]).requiresGrad_();
  const optimizer = new AdamW(Object.entries({ mean, logStd }), { lr: 0.05, weightDecay: 0 });
  const x = tensor(grid);
  const logP = tensor(grid.map((at) => Math.log(target(at)))).logSoftmax(-1);
  for (let step = 0; step < 800; step++) {
    scope(() => {
      const logQ = logNormal(x, mean, logStd);
      const kl = direction === 'reverse' ? logQ.exp().mul(logQ.sub(logP)).sum() : logP.exp().mul(logP.sub(logQ)).sum();
      kl.backward();
    });
    optimizer.step();
    optimizer.zeroGrad();
  }
  return { direction, mean: mean.item(), std: Math.exp(logStd.item()) };
}

/** The logarithm of a normal density, normalised over the grid. */
function logNormal(x: Tensor, mean: Tensor, logStd: Tensor): Tensor {
  return x.sub(mean).div(logStd.exp()).square().mul(-0.5).logSoftmax(-1);
}
