/** Ownership: who frees which tensor, and that none leaks. */
import { describe, expect, it } from 'vitest';
import { runProgram } from '../child.test-support.ts';
import { keep, liveBytes, liveTensors, ones, scope, type Tensor, TensorError, tensor, zeros } from '../index.ts';

describe('scope', () => {
  it('frees what it does not return', () => {
    const before = liveTensors();
    let inner: Tensor | undefined;
    const result = scope(() => {
      inner = ones([3]);
      return inner.add(1).mul(2);
    });
    expect(liveTensors()).toBe(before + 1);
    expect(result.tolist()).toEqual([4, 4, 4]);
    expect(inner?.isFreed).toBe(true);
    result.dispose();
    expect(liveTensors()).toBe(before);
  });

  it('finds what it returns in arrays, objects, maps and sets', () => {
    const before = liveTensors();
    const shared = ones([1]);
    const result = scope(() => {
      zeros([1]);
      return {
        list: [ones([1]), [ones([2])]],
        map: new Map([['a', { deep: ones([3]) }]]),
        set: new Set([ones([4])]),
        none: null,
        data: new Float32Array(3),
        text: 'x',
        outer: shared,
      };
    });
    expect(liveTensors()).toBe(before + 1 + 4);
    expect(result.map.get('a')?.deep.shape).toEqual([3]);
    expect([...result.set][0]?.shape).toEqual([4]);
    expect(result.outer.isFreed).toBe(false);
  });

  it('nests: what an inner one returns belongs to the outer one', () => {
    const before = liveTensors();
    scope(() => {
      const passed = scope(() => scope(() => ones([2]).add(1)).mul(2));
      expect(passed.tolist()).toEqual([4, 4]);
      expect(liveTensors()).toBe(before + 1);
    });
    expect(liveTensors()).toBe(before);
  });

  it('frees everything when it throws, and the outer scope goes on', () => {
    const before = liveTensors();
    scope(() => {
      const mine = ones([1]);
      expect(() =>
        scope(() => {
          ones([5]);
          throw new Error('inside');
        }),
      ).toThrow('inside');
      expect(mine.item()).toBe(1);
      expect(liveTensors()).toBe(before + 1);
    });
    expect(liveTensors()).toBe(before);
  });

  it('refuses a promise', () => {
    const before = liveTensors();
    expect(() => scope(async () => ones([1]))).toThrow(/synchronous/);
    expect(liveTensors()).toBe(before);
    expect(scope(() => 5)).toBe(5);
  });

  it('keep lifts a tensor out of every scope', () => {
    const before = liveTensors();
    const kept = scope(() => scope(() => keep(ones([2]))).neg() && keep(zeros([3])));
    expect(kept.shape).toEqual([3]);
    expect(liveTensors()).toBe(before + 2); // the first call's kept tensor too, until it is collected
    expect(keep(kept)).toBe(kept);
  });

  it('a tensor disposed of by hand inside is not freed twice', () => {
    const before = liveTensors();
    scope(() => {
      const a = ones([1]);
      a.dispose();
      a.dispose();
      const b = ones([1]); // may have taken the slot of a
      expect(b.item()).toBe(1);
    });
    expect(liveTensors()).toBe(before);
  });

  it('takes a list of ten thousand', () => {
    const before = liveTensors();
    scope(() => {
      for (let i = 0; i < 10_000; i++) zeros([1]);
      expect(liveTensors()).toBe(before + 10_000);
    });
    expect(liveTensors()).toBe(before);
  });
});

describe('using and dispose', () => {
  it('using frees at the end of the block', () => {
    const before = liveTensors();
    {
      using a = ones([2]);
      using b = a.add(1);
      expect(b.sum().dispose()).toBeUndefined();
      expect(liveTensors()).toBe(before + 2);
    }
    expect(liveTensors()).toBe(before);
  });

  it('a freed tensor says so, whatever is done to it', () => {
    const freed = ones([2]);
    freed.dispose();
    freed.dispose();
    const uses: (() => unknown)[] = [
      () => freed.add(1),
      () => ones([2]).add(freed),
      () => freed.shape,
      () => freed.item(),
      () => freed.data(),
      () => freed.grad,
      () => freed.requiresGrad,
      () => freed.backward(),
      () => freed.to('float64'),
      () => freed.at(0),
      () => freed.view(2),
      () => freed.requiresGrad_(),
      () => freed.add_(1),
      () => {
        ones([2]).grad = freed;
      },
    ];
    for (const use of uses) {
      expect(use).toThrow(TensorError);
      expect(use).toThrow(/already freed/);
    }
    expect(freed.isFreed).toBe(true);
    expect(String(freed)).toBe('freed tensor');
  });

  it('a stale handle never reaches the tensor that took its place', () => {
    const stale = ones([1]);
    const handle = stale.handle;
    stale.dispose();
    const next = ones([1]);
    expect(next.handle).not.toBe(handle);
  });
});

describe('the books', () => {
  it('count bytes once per storage', () => {
    const before = liveBytes();
    const base = zeros([1000]);
    const view = base.view(10, 100);
    expect(liveBytes() - before).toBe(4000);
    view.dispose();
    base.dispose();
    expect(liveBytes()).toBe(before);
  });

  it('4,000 training steps leave the tensor count and the resident memory where they were', () => {
    const report = child(`
      import { AdamW, Linear, Module, clipGradNorm } from './src/nn/index.ts';
      import { liveTensors, randn, scope, seed, setThreads } from './src/tensor/index.ts';
      class Net extends Module { a = new Linear(16, 32); b = new Linear(32, 1); forward(x) { return this.b.forward(this.a.forward(x).relu()); } }
      seed(0); setThreads(1);
      const net = new Net();
      const optimiser = new AdamW(net.namedParameters(), { lr: 1e-3 });
      const step = () => scope(() => {
        const x = randn([8, 16]);
        const loss = net.forward(x).sub(x.sum(1, true)).square().mean();
        loss.backward(); clipGradNorm(net.parameters(), 1); optimiser.step(); optimiser.zeroGrad();
        return loss.item();
      });
      const first = step();
      for (let i = 0; i < 500; i++) step();
      const start = { live: liveTensors(), rss: process.memoryUsage().rss };
      let last = 0;
      for (let i = 0; i < 4000; i++) last = step();
      console.log(JSON.stringify({ first, last, live: liveTensors() - start.live, growth: process.memoryUsage().rss - start.rss }));
    `) as { first: number; last: number; live: number; growth: number };
    expect(report.live).toBe(0);
    expect(report.growth).toBeLessThan(24 * 2 ** 20);
    expect(report.last).toBeLessThan(report.first / 10);
  });

  it('the collector frees what nobody holds', () => {
    const report = child(
      `
      import { liveTensors, zeros } from './src/tensor/index.ts';
      const before = liveTensors();
      for (let i = 0; i < 640; i++) zeros([10]);
      const made = liveTensors() - before;
      for (let i = 0; i < 100 && liveTensors() > before; i++) { globalThis.gc(); await new Promise((done) => setTimeout(done, 5)); }
      console.log(JSON.stringify({ made, left: liveTensors() - before }));
      `,
      '--expose-gc',
    );
    expect(report).toEqual({ made: 640, left: 0 });
  });

  it('and hears of the bytes behind the handles: without being asked, it keeps 3 GB of litter below 1 GB', () => {
    const report = child(`
      import { liveBytes, zeros } from './src/tensor/index.ts';
      let peak = 0;
      for (let i = 0; i < 3000; i++) {
        zeros([250000]);
        if (i % 16 === 0) { await new Promise((done) => setImmediate(done)); peak = Math.max(peak, liveBytes()); }
      }
      console.log(JSON.stringify({ peak }));
    `) as { peak: number };
    expect(report.peak).toBeLessThan(1e9);
  });
});

function child(program: string, ...flags: string[]): unknown {
  const result = runProgram(program, ...flags);
  expect(result.stderr).toBe('');
  return JSON.parse(result.stdout);
}

it('tensor() leaves one tensor, whatever it converts through', () => {
  const before = liveTensors();
  const made = [
    tensor([1, 2], { dtype: 'bfloat16' }),
    tensor([1], { dtype: 'int32' }),
    tensor(Float64Array.of(1), { dtype: 'float32' }),
  ];
  expect(liveTensors()).toBe(before + made.length);
});
