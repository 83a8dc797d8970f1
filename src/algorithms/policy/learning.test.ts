/** Every algorithm on two small environments with a known optimum, through the same steps that a trainer takes. */
import { describe, expect, it } from 'vitest';
import { liveTensors, noGrad, scope, type Tensor, tensor } from '../../tensor/index.ts';
import { zeroSpreadShare } from '../advantages.ts';
import { stepTotals } from '../aggregation.ts';
import { random, sum } from '../checks.test-support.ts';
import { policyAlgorithms } from '../index.ts';
import { bestOfGroup, inMixedGroup } from '../reward-shaping.ts';
import { segmentsOf } from '../segments.ts';
import { policyAdvantages } from './advantages.ts';
import { type PolicyAlgorithm, policyOptions, usesReference } from './policy.ts';

interface Response {
  states: number[];
  actions: number[];
  reward: number;
}
interface World {
  states: number;
  actions: number;
  prompts: number;
  maxMoves: number;
  respond(prompt: number, act: (state: number) => number, next: () => number): Response;
  /** The exact expected reward of a policy given as probabilities [state][action]. */
  worth(policy: number[][]): number;
}

// Three contexts with four arms that pay 1 with these probabilities. The optimum takes the best arm of each: 0.9 on
// average.
const chances = [
  [0.9, 0.3, 0.1, 0.4],
  [0.2, 0.4, 0.9, 0.3],
  [0.1, 0.9, 0.5, 0.3],
];
const bandit: World = {
  states: 3,
  actions: 4,
  prompts: 3,
  maxMoves: 1,
  respond: (prompt, act, next) => {
    const arm = act(prompt);
    return { states: [prompt], actions: [arm], reward: next() < (chances[prompt]?.[arm] as number) ? 1 : 0 };
  },
  worth: (policy) =>
    sum(policy.map((row, state) => sum(row.map((p, arm) => (p * (chances[state]?.[arm] as number)) / 3)))),
};

// A chain 0–1–2–3: action 1 moves right, 0 left (not beyond 0). Reaching 3 within four moves pays 1, so the optimum is
// 1.
const chain: World = {
  states: 3,
  actions: 2,
  prompts: 3,
  maxMoves: 4,
  respond: (_, act) => {
    const out: Response = { states: [], actions: [], reward: 0 };
    for (let state = 0; out.states.length < 4 && out.reward === 0; ) {
      const action = act(state);
      out.states.push(state);
      out.actions.push(action);
      state = action === 1 ? state + 1 : Math.max(0, state - 1);
      if (state === 3) out.reward = 1;
    }
    return out;
  },
  worth: (policy) => {
    const reach = (state: number, moves: number): number => {
      if (state === 3) return 1;
      if (moves === 0) return 0;
      const [left, right] = policy[state] as [number, number];
      return left * reach(Math.max(0, state - 1), moves - 1) + right * reach(state + 1, moves - 1);
    };
    return reach(0, 4);
  },
};

/** Adam on plain numbers. */
function adam(parameters: number[], rate: number): (gradient: readonly number[]) => void {
  const m = parameters.map(() => 0);
  const v = parameters.map(() => 0);
  let step = 0;
  return (gradient) => {
    step++;
    gradient.forEach((g, i) => {
      m[i] = 0.9 * (m[i] as number) + 0.1 * g;
      v[i] = 0.99 * (v[i] as number) + 0.01 * g * g;
      const mean = (m[i] as number) / (1 - 0.9 ** step);
      const square = (v[i] as number) / (1 - 0.99 ** step);
      parameters[i] = (parameters[i] as number) - (rate * mean) / (Math.sqrt(square) + 1e-8);
    });
  };
}

function train(algorithm: PolicyAlgorithm, world: World, steps: number): { before: number; after: number } {
  const next = random(5);
  const options = policyOptions(algorithm);
  const logits = new Array<number>(world.states * world.actions).fill(0);
  const worths = new Array<number>(world.states).fill(0);
  const improve = adam(logits, 0.1);
  const improveValue = adam(worths, 0.1);
  const groupSize = 8;

  const logps = (leaf: Tensor) => leaf.logSoftmax(-1);
  const table = () => tensor(logits, { shape: [world.states, world.actions] });
  const probabilities = () => scope(() => logps(table()).exp().tolist() as number[][]);
  const before = world.worth(probabilities());

  for (let step = 0; step < steps; step++) {
    const policy = probabilities();
    const act = (state: number) => {
      const point = next();
      const row = policy[state] as number[];
      const found = row.findIndex((_, i) => sum(row.slice(0, i + 1)) > point);
      return found < 0 ? row.length - 1 : found;
    };
    let groups = Array.from({ length: world.prompts * groupSize }, (_, i) => Math.floor(i / groupSize));
    let responses = groups.map((prompt) => world.respond(prompt, act, next));
    if (options.dropEqualGroups || algorithm.keeps === 'best') {
      const keep = algorithm.keeps === 'best' ? bestOfGroup : inMixedGroup;
      const kept = keep(
        responses.map((response) => response.reward),
        groups,
      );
      responses = responses.filter((_, i) => kept[i]);
      groups = groups.filter((_, i) => kept[i]);
      if (responses.length === 0) continue;
    }
    const rewards = responses.map((response) => response.reward);
    const lengths = responses.map((response) => response.states.length);
    const states = responses.flatMap((response) => response.states);
    const actions = responses.flatMap((response) => response.actions);
    const places = BigInt64Array.from(states, (state, t) => BigInt(state * world.actions + (actions[t] as number)));

    // the reference is the initial, uniform policy
    const lpOld = states.map((state, t) => Math.log(policy[state]?.[actions[t] as number] as number));
    const lpRef = lpOld.map(() => -Math.log(world.actions));
    const { perToken, returns } = policyAdvantages(algorithm, options, {
      rewards,
      groups,
      lengths,
      k1: lpOld.map((value, t) => value - (lpRef[t] as number)),
      values: states.map((state) => worths[state] as number),
    });
    const valuesOld = states.map((state) => worths[state] as number);
    const totals = stepTotals(lengths, world.maxMoves);

    for (let epoch = 0; epoch < options.ppoEpochs; epoch++) {
      const [gradient, valueGradient] = scope(() => {
        const leaf = table().requiresGrad_();
        const valueLeaf = tensor(worths).requiresGrad_();
        const lps = logps(leaf);
        const rows = lps.indexSelect(0, tensor(BigInt64Array.from(states, BigInt)));
        const lp = lps.flatten().indexSelect(0, tensor(places));
        const { loss } = algorithm.loss(
          {
            lp,
            lpOld: epoch === 0 ? lp.detach() : tensor(lpOld),
            lpRef: usesReference(algorithm, options) ? tensor(lpRef) : undefined,
            entropy: noGrad(() => rows.exp().mul(rows).sum(-1).neg()),
            advantages: tensor(perToken, { dtype: 'float32' }),
            segments: segmentsOf(lengths, lp),
            values: valueLeaf.indexSelect(0, tensor(BigInt64Array.from(states, BigInt))),
            valuesOld: tensor(valuesOld),
            returns: returns && tensor(returns, { dtype: 'float32' }),
          },
          options,
          totals,
        );
        loss.backward();
        return [(leaf.grad as Tensor).numbers(), valueLeaf.grad?.numbers() ?? []];
      });
      if (zeroSpreadShare(rewards, groups) === 1 && algorithm.klIn === 'none' && algorithm.keeps === 'all')
        expect(gradient.every((g) => g === 0)).toBe(true);
      improve(gradient as number[]);
      if (algorithm.needsValue) improveValue(valueGradient as number[]);
    }
  }
  return { before, after: world.worth(probabilities()) };
}

const ofRewards = policyAlgorithms.filter(({ needsTeacher }) => !needsTeacher);
describe.each(ofRewards.map((algorithm) => [algorithm.name, algorithm] as const))('%s', (_, algorithm) => {
  it('finds the best arm of each context', () => {
    const live = liveTensors();
    const { before, after } = train(algorithm, bandit, 120);
    expect(before).toBeCloseTo(0.4417, 3);
    expect(after).toBeGreaterThan(0.87);
    expect(liveTensors()).toBe(live);
  });

  it('walks the chain to its end', () => {
    const { before, after } = train(algorithm, chain, 60);
    expect(before).toBeCloseTo(3 / 16, 6);
    expect(after).toBeGreaterThan(0.97);
  });
});
