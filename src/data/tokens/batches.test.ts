import { describe, expect, it } from 'vitest';
import { type Batch, packBatch } from './batch.ts';
import { Batches, type BatchOptions } from './batches.ts';
import { sequence, type TokenRecord } from './record.ts';

/** Record i holds i + 1 tokens, all equal to i. */
function record(i: number, length = i + 1): TokenRecord {
  const ids = new Int32Array(length).fill(i);
  return { sequences: [sequence([ids], [0, length])], example: i, label: false, margin: 0, group: 0, source: -1 };
}

function store(count: number, lengthOf = (i: number) => i + 1) {
  const loads: number[] = [];
  return {
    length: count,
    lengths: Int32Array.from({ length: count }, (_, i) => lengthOf(i)),
    loads,
    async records(indices: ArrayLike<number>) {
      loads.push(indices.length);
      await new Promise((resolve) => setTimeout(resolve, 1));
      return Array.from(indices, (i) => record(i, lengthOf(i)));
    },
  };
}

async function order(options: BatchOptions, count = 20): Promise<number[][]> {
  const batches = new Batches(store(count), options);
  return (await Array.fromAsync(batches)).map((batch) => [...batch.exampleIndices]);
}

describe('packBatch', () => {
  it('lays chosen sequences before rejected ones, with masks, positions and step labels in place', () => {
    const pair = (a: number[], b: number[], prompt: number): TokenRecord => ({
      sequences: [
        sequence([Int32Array.from(a)], [prompt, a.length], [prompt, 1, a.length - 1, -1]),
        sequence([Int32Array.from(b)], [prompt, b.length]),
      ],
      example: a[0] as number,
      label: prompt === 1,
      margin: 0.5,
      group: 3,
      source: 2,
    });
    const batch = packBatch([pair([10, 11, 12], [20, 21], 1), pair([30, 31, 32, 33], [40, 41, 42], 2)]);
    expect(batch).toEqual({
      examples: 2,
      sequences: 4,
      tokens: 12,
      ids: Int32Array.of(10, 11, 12, 30, 31, 32, 33, 20, 21, 40, 41, 42),
      positions: Int32Array.of(0, 1, 2, 0, 1, 2, 3, 0, 1, 0, 1, 2),
      cuSeqlens: Int32Array.of(0, 3, 7, 9, 12),
      lossMask: Uint8Array.of(0, 1, 1, 0, 0, 1, 1, 0, 1, 0, 0, 1),
      promptLengths: Int32Array.of(1, 2, 1, 2),
      stepPositions: Int32Array.of(1, 2, 5, 6),
      stepLabels: Int32Array.of(1, -1, 1, -1),
      labels: Uint8Array.of(1, 0),
      margins: Float32Array.of(0.5, 0.5),
      groups: Int32Array.of(3, 3),
      sources: Int32Array.of(2, 2),
      exampleIndices: Int32Array.of(10, 30),
    } satisfies Batch);
  });
});

describe('Batches', () => {
  it('goes through every example once an epoch, in another order each, the same under one seed', async () => {
    const two = await order({ batchSize: 6, epochs: 2, seed: 5 });
    expect(two.map((batch) => batch.length)).toEqual([6, 6, 6, 2, 6, 6, 6, 2]);
    const [first, second] = [two.slice(0, 4).flat(), two.slice(4).flat()];
    const all = Array.from({ length: 20 }, (_, i) => i);
    expect([...first].sort((a, b) => a - b)).toEqual(all);
    expect([...second].sort((a, b) => a - b)).toEqual(all);
    expect(second).not.toEqual(first);
    expect(await order({ batchSize: 6, epochs: 2, seed: 5 })).toEqual(two);
    expect(await order({ batchSize: 6, epochs: 2, seed: 6 })).not.toEqual(two);
    expect((await order({ batchSize: 6, order: 'sequential' })).flat()).toEqual(all);
    expect((await order({ batchSize: 6, dropLast: true })).map((batch) => batch.length)).toEqual([6, 6, 6]);
  });

  it('holds to a token budget; one example above it stands alone', async () => {
    const batches = await Array.fromAsync(new Batches(store(20), { tokenBudget: 19 }));
    for (const batch of batches) expect(batch.tokens <= 19 || batch.examples === 1).toBe(true);
    expect(batches.reduce((sum, batch) => sum + batch.tokens, 0)).toBe(210);
    expect(batches.some((batch) => batch.tokens === 20)).toBe(true);
    const both = await Array.fromAsync(
      new Batches(
        store(20, () => 2),
        { tokenBudget: 100, batchSize: 3 },
      ),
    );
    expect(Math.max(...both.map((batch) => batch.examples))).toBe(3);
  });

  it('resumes at every position with exactly what would have come', async () => {
    for (const options of [
      { batchSize: 7 },
      { tokenBudget: 40, lengthAware: true },
      { batchSize: 5, order: 'replacement' as const },
    ]) {
      const settings: BatchOptions = { ...options, epochs: 3, seed: 9 };
      const whole = await order(settings);
      const states = [{ epoch: 0, examples: 0 }];
      const running = new Batches(store(20), settings);
      for await (const _ of running) states.push(running.state);
      expect(states).toHaveLength(whole.length + 1);
      for (const [done, state] of states.entries()) {
        const resumed = new Batches(store(20), settings);
        resumed.seek(JSON.parse(JSON.stringify(state)));
        const rest = (await Array.fromAsync(resumed)).map((batch) => [...batch.exampleIndices]);
        expect(rest).toEqual(whole.slice(done));
      }
      expect(running.total()).toBe(whole.length);
    }
  });

  it('counts the batches of many epochs as one by one, and without going through them where all have the same number', () => {
    for (const options of [
      { batchSize: 7 },
      { batchSize: 7, dropLast: true },
      { batchSize: 6, lengthAware: true },
      { tokenBudget: 40, lengthAware: true },
    ]) {
      const batches = new Batches(store(20), { ...options, seed: 9 });
      const singly = [2, 3, 4, 5].map((epoch) => batches.count(epoch));
      expect(batches.countEpochs(2, 6)).toBe(singly.reduce((sum, count) => sum + count));
      expect(batches.countEpochs(6, 6)).toBe(0);
    }
    expect(new Batches(store(20), { batchSize: 7 }).countEpochs(1, 1e12)).toBe(3 * (1e12 - 1));
  });

  it('goes on with batches of another size from the very next example', async () => {
    const settings = { epochs: 2, seed: 9 };
    const whole = (await order({ ...settings, batchSize: 1 })).flat();
    for (const [before, after] of [
      [4, 7],
      [8, 4],
      [6, 20],
    ] as const) {
      const running = new Batches(store(20), { ...settings, batchSize: before });
      const seen: number[] = [];
      for await (const batch of running) {
        seen.push(...batch.exampleIndices);
        if (seen.length >= 12) break;
      }
      const resumed = new Batches(store(20), { ...settings, batchSize: after });
      resumed.seek(running.state);
      const rest = await Array.fromAsync(resumed);
      expect([...seen, ...rest.flatMap((batch) => [...batch.exampleIndices])]).toEqual(whole);
      expect(Math.max(...rest.map(({ examples }) => examples))).toBe(Math.min(20, after));
    }
  });

  it('shares out over processes from any position as it would have from the start', async () => {
    const settings = { batchSize: 2, world: 3, seed: 4 };
    for (const rank of [0, 1, 2]) {
      const whole = await order({ ...settings, rank });
      const running = new Batches(store(20), { ...settings, rank: 0 });
      for await (const _ of running) break;
      const resumed = new Batches(store(20), { ...settings, rank });
      resumed.seek(running.state);
      const rest = (await Array.fromAsync(resumed)).map((batch) => [...batch.exampleIndices]);
      expect(rest).toEqual(whole.slice(1));
    }
  });

  it('puts like lengths together when asked, without losing any, in random order of batches', async () => {
    const batches = await Array.fromAsync(new Batches(store(400), { batchSize: 10, lengthAware: true, seed: 1 }));
    const spreads = batches.map(({ exampleIndices: i }) => Math.max(...i) - Math.min(...i));
    expect(Math.max(...spreads)).toBe(9);
    expect(new Set(batches.flatMap((batch) => [...batch.exampleIndices])).size).toBe(400);
    const means = batches.map(({ exampleIndices: i }) => Math.min(...i));
    expect(means).not.toEqual([...means].sort((a, b) => a - b));
  });

  it('shares batches out over processes: disjoint, equally many', async () => {
    const shares = await Promise.all([0, 1, 2].map((rank) => order({ batchSize: 2, rank, world: 3 })));
    expect(shares.map((share) => share.length)).toEqual([3, 3, 3]);
    expect(new Set(shares.flat(2)).size).toBe(18);
  });

  it('draws with replacement for evaluation', async () => {
    const drawn = (await order({ batchSize: 10, order: 'replacement', seed: 3 }, 50)).flat();
    expect(drawn).toHaveLength(50);
    expect(new Set(drawn).size).toBeLessThan(45);
  });

  it('reads ahead while a step runs', async () => {
    const source = store(100);
    const batches = new Batches(source, { batchSize: 10, prefetch: 3 });
    for await (const _ of batches) {
      expect(source.loads.length).toBe(4);
      expect(batches.state).toEqual({ epoch: 0, examples: 10 });
      break;
    }
  });

  it('refuses sizes that make no sense', () => {
    expect(() => new Batches(store(3), {})).toThrow(/needs a size/);
    expect(() => new Batches(store(3), { batchSize: 0 })).toThrow(/batchSize 0: expected a whole number/);
    expect(() => new Batches(store(3), { batchSize: 1, rank: 2, world: 2 })).toThrow(/rank must lie in 0…1/);
  });

  it('says when no batch fits, and reports what went wrong while reading', async () => {
    await expect(order({ batchSize: 30, dropLast: true })).rejects.toThrow(/fewer examples than one batch/);
    const broken = { ...store(5), records: async () => Promise.reject(new Error('disk gone')) };
    await expect(Array.fromAsync(new Batches(broken, { batchSize: 2 }))).rejects.toThrow('disk gone');
  });
});

it('refuses misspelt options, and positions that there cannot be', () => {
  const misspelt = { batchSize: 1, epocs: 3 } as never;
  expect(() => new Batches(store(3), misspelt)).toThrow(/"epocs". Did you mean "epochs"/);
  expect(() => new Batches(store(3), { batchSize: 1 }).seek({ epoch: -1, examples: 2 })).toThrow(/epoch -1: expected/);
});
