import { expect, it } from 'vitest';
import { soloWorld, type World } from '../dist/world.ts';
import type { RewardScorer } from '../rewards/index.ts';
import type { Tokenizer } from '../text/index.ts';
import { drawRollouts, type Measuring } from './drawing.ts';
import type { PolicyPrompt } from './prompts.ts';
import type { Rollout, RolloutSampler } from './rollout.ts';

/** Two ranks in this process. Each does the given number of pieces of work while it waits. */
function twoRanks(...pieces: [number, number]): [World, World] {
  const rounds: { values: unknown[]; all: PromiseWithResolvers<unknown[]> }[] = [];
  return pieces.map((most, rank): World => {
    let round = 0;
    return {
      ...soloWorld,
      rank,
      size: 2,
      isFirst: rank === 0,
      meet: async (_, work) => {
        for (let i = 0; i < most && work?.(); i++);
      },
      gather: <T>(value: T) => {
        const at = round++;
        rounds[at] ??= { values: [], all: Promise.withResolvers() };
        const { values, all } = rounds[at];
        values[rank] = value;
        if (values.filter((each) => each !== undefined).length === 2) all.resolve(values);
        return all.promise as Promise<T[]>;
      },
    };
  }) as [World, World];
}

const prompts = Array.from({ length: 6 }, (_, index) => ({
  index,
  ids: Int32Array.of(index, index),
  messages: [],
})) as unknown as PolicyPrompt[];
const sampler = {
  generate: async (requests: { prompt: Int32Array; samples: number }[]) =>
    requests.map(({ prompt, samples }) =>
      Array.from({ length: samples }, (_, k) => ({ ids: [prompt[0], k, 9], logprobs: [0, 0, 0], finish: 'stop' })),
    ),
} as unknown as RolloutSampler;
const tokenizer = { eosIds: [9], decode: (ids: Int32Array) => ids.join(' ') } as unknown as Tokenizer;
const scorer: RewardScorer = { name: 'one', score: async (items) => items.map(() => 1) };

/** Measures the first id, in pieces of one group, and records which groups it measured. */
function measuring(measured: number[]): Measuring {
  return {
    pieces: (rollouts) => [...Map.groupBy(rollouts, ({ group }) => group).values()],
    cost: (piece) => piece.length,
    measure: (piece) => {
      measured.push((piece[0] as Rollout).group);
      return piece.map(({ ids }) => ({ lpRef: Float32Array.of(ids[0] as number) }));
    },
  };
}

it.each([
  [3, 3],
  [3, 1],
  [0, 2],
  [0, 0],
])('ranks that measured %i and %i of three pieces early have all measured in the end, each once', async (a, b) => {
  const measured = [[], []] as [number[], number[]];
  const drawn = await Promise.all(
    twoRanks(a, b).map(async (world, rank) => {
      const options = { groupSize: 2, maxNewTokens: 3, temperature: 1, seeds: (place: number) => place };
      const more = { world, measuring: measuring(measured[rank] as number[]) };
      return (await drawRollouts(sampler, tokenizer, scorer, prompts, { ...options, ...more })).rollouts;
    }),
  );
  for (const rollouts of drawn) {
    expect(rollouts.map(({ group, rolloutIndex }) => [group, rolloutIndex])).toEqual(
      prompts.flatMap(({ index }) => [0, 1].map((k) => [index, k])),
    );
    expect(rollouts.map(({ lpRef }) => lpRef?.[0])).toEqual(prompts.flatMap(({ index }) => [index, index]));
  }
  expect(measured.flat().sort()).toEqual([0, 1, 2, 3, 4, 5]);
  // The rest is dealt evenly.
  const left = [a, b].map((early, rank) => (measured[rank] as number[]).length - early);
  expect(Math.abs((left[0] as number) - (left[1] as number))).toBeLessThanOrEqual(1);
});
