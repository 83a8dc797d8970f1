import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { setThreads } from '../../src/tensor/index.ts';
import { tinyModel } from '../support/tiny-model.ts';
import { turnsModel } from '../support/turns.ts';
import { spawnRanks } from './spawn.ts';
import { type Job, type Outcome, runJobs, trainings } from './trainings.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-data-parallel-'));
afterAll(() => rmSync(folder, { recursive: true }));

const all = Object.keys(trainings);
/** Those that are sharded as well. */
const some = [
  'sft with LoRA and dropout',
  'sft with QLoRA',
  'sft with checkpointing',
  'sft with a teacher',
  'reward outcome',
  'preference kto',
  'policy ppo',
  'policy dapo',
  'policy opd',
];
/** Those that are compared to rounding, too: the same bits with --exact say more of a loss, and all are held to them. */
const rounded = [
  ...[...some, 'sft', 'preference dpo', 'policy grpo', 'policy raft', 'policy opd by advantage'],
  'policy in an environment',
];
/** One of each kind, for the world that costs most. */
const few = ['sft with QLoRA', 'reward outcome', 'preference kto', 'policy ppo'];
let alone: Record<string, Outcome>;
const worlds: Record<number, Record<string, Outcome>> = {};

beforeAll(async () => {
  const model = await tinyModel(join(folder, 'model'));
  await turnsModel(`${model}-turns`);
  await tinyModel(join(folder, 'teacher'), { seed: 2, layers: 1 });
  const jobs = (size: number, names: readonly string[]): Job[] =>
    ['plain', 'exact', 'sharded', 'exact sharded', 'full', 'exact full'].flatMap((mode) =>
      names.flatMap((training) => {
        const label = `${mode} ${training}`;
        const shard = mode.includes('sharded') ? 'optimizer' : mode.includes('full') ? 'full' : 'none';
        if (shard !== 'none' && !(size > 1 && some.includes(training))) return [];
        if (mode === 'plain' && !rounded.includes(training)) return [];
        // The same bits are more than the same to rounding: four ranks show only those.
        if (shard !== 'none' && size === 4 && !mode.includes('exact')) return [];
        const output = join(folder, `${size} ${label}`.replaceAll(' ', '-'));
        const evalSteps = some.includes(training) ? 2 : -1;
        const config = { exact: mode.includes('exact'), shard, maxGradNorm: 0.5, evalSteps };
        return [{ label, training, config, model, output }];
      }),
    );
  const together = async (size: number, names: readonly string[]) => {
    const path = join(folder, `jobs-${size}.json`);
    writeFileSync(path, JSON.stringify(jobs(size, names)));
    await spawnRanks(size, [join(import.meta.dirname, 'rank.ts'), path]);
    worlds[size] = JSON.parse(readFileSync(`${path}.done`, 'utf8')) as Record<string, Outcome>;
  };
  // The bits of a sum depend on the number of threads: ranks have one each.
  setThreads(1);
  alone = await runJobs(jobs(1, all));
  await together(2, all);
  await together(4, few);
}, 1_200_000);

/** The largest difference, as a share of values above one: a loss such as IPO's is some 25. */
const furthest = (a: readonly number[], b: readonly number[]) =>
  a.reduce((most, value, i) => Math.max(most, Math.abs(value - (b[i] as number)) / Math.max(1, Math.abs(value))), 0);

describe.each([
  [2, all],
  [4, few],
] as const)('%i ranks', (size, names) => {
  it.each(names.filter((name) => rounded.includes(name)))('%s: the same as one rank, to rounding', (name) => {
    const [one, many] = [alone[`plain ${name}`], worlds[size]?.[`plain ${name}`]] as [Outcome, Outcome];
    expect(many.losses).toHaveLength(one.losses.length);
    expect(furthest(many.losses, one.losses)).toBeLessThan(2e-5);
    expect(many.weights.length).toBe(one.weights.length);
    expect(furthest(many.weights, one.weights)).toBeLessThan(1e-4);
    expect(Object.keys(many.evaluated)).toEqual(Object.keys(one.evaluated));
    expect(furthest(Object.values(many.evaluated), Object.values(one.evaluated))).toBeLessThan(1e-3);
    // Log-probs in a batch of other neighbours differ in their last bits, and samples do not.
    expect(many.samples).toBe(one.samples);
  });

  it.each(names)('%s: the same bits with --exact', (name) => {
    const [one, many] = [alone[`exact ${name}`], worlds[size]?.[`exact ${name}`]] as [Outcome, Outcome];
    expect(many.bits).not.toBe('');
    expect(many.bits).toBe(one.bits);
    expect(many.losses).toEqual(one.losses);
    expect(many.samples).toBe(one.samples);
  });
});

describe.each([
  [2, 'the optimiser', 'sharded'],
  [4, 'the optimiser', 'sharded'],
  [2, 'the weights', 'full'],
  [4, 'the weights', 'full'],
] as const)('%i ranks that share %s', (size, _, mode) => {
  it.each(size === 2 ? some : few)('%s: the same as one rank', (name) => {
    const many = worlds[size] as Record<string, Outcome>;
    if (size === 2) {
      const [one, sharded] = [alone[`plain ${name}`], many[`${mode} ${name}`]] as [Outcome, Outcome];
      expect(furthest(sharded.losses, one.losses)).toBeLessThan(2e-5);
      expect(sharded.weights.length).toBe(one.weights.length);
      expect(furthest(sharded.weights, one.weights)).toBeLessThan(1e-4);
    }
    const [exact, exactSharded] = [alone[`exact ${name}`], many[`exact ${mode} ${name}`]] as [Outcome, Outcome];
    expect(exactSharded.bits).toBe(exact.bits);
    expect(exactSharded.losses).toEqual(exact.losses);
  });
});

it('trains at all: every loss moves the weights, and policies sample', () => {
  for (const name of all) {
    const { weights, samples, evaluated } = alone[`exact ${name}`] as Outcome;
    expect(weights.some((weight) => weight !== 0)).toBe(true);
    if (some.includes(name)) expect(Object.keys(evaluated)).not.toEqual([]);
    if (name.startsWith('policy')) expect(samples.split('\n').length).toBeGreaterThanOrEqual(20);
  }
});
