/** Streams and captured graphs. */
import { expect, it } from 'vitest';
import { runProgram } from '../../src/tensor/child.test-support.ts';
import { native } from '../../src/tensor/engine/native.ts';
import {
  cudaCount,
  Graph,
  keep,
  liveTensors,
  randn,
  Stream,
  scope,
  synchronize,
  zeros,
} from '../../src/tensor/index.ts';
import { gap, onlyOnCuda } from './device.ts';

onlyOnCuda('streams and graphs', () => {
  const devices = Array.from({ length: cudaCount() }, (_, i) => [`cuda:${i}`] as const);

  it.each(devices)('a replay computes with what its inputs hold then (%s)', (device) => {
    const before = liveTensors();
    const x = keep(randn([64, 64], { device }));
    const out = keep(zeros([64, 64], { device }));
    const graph = Graph.capture(() => scope(() => void out.copy_(x.matmul(x).add(1))), { stream: new Stream(device) });
    scope(() => {
      for (let i = 0; i < 3; i++) {
        x.copy_(randn([64, 64], { device }));
        graph.replay();
        synchronize(device);
        expect(gap(out, x.matmul(x).add(1))).toBeLessThanOrEqual(1e-5);
      }
    });
    graph.dispose();
    x.dispose();
    out.dispose();
    expect(liveTensors()).toBe(before);
  });

  it.each(devices)('a stream waits for the default one, and that for it (%s)', (device) =>
    scope(() => {
      const x = randn([512, 512], { device });
      const doubled = new Stream(device).run(() => x.add(x));
      expect(gap(doubled.sub(x), x)).toBeLessThanOrEqual(1e-6);
    }),
  );

  it.each([0, 2])('a body that throws ends the capture, and the next one works (%i warmups)', (warmups) => {
    expect(() =>
      Graph.capture(
        () => {
          throw new Error('mid-capture');
        },
        { warmups },
      ),
    ).toThrow('mid-capture');
    const out = keep(zeros([4], { device: 'cuda:0' }));
    const graph = Graph.capture(() => scope(() => void out.add_(1)), { warmups: 0 });
    graph.replay();
    expect(out.numbers()).toEqual([1, 1, 1, 1]);
    graph.dispose();
    out.dispose();
  });

  it('what we refuse during a capture does not spoil the next one', () => {
    const out = keep(zeros([4], { device: 'cuda:0' }));
    expect(() => Graph.capture(() => synchronize(), { warmups: 0 })).toThrow(/while a graph is being captured/);
    expect(() => Graph.capture(() => void Graph.capture(() => {}), { warmups: 0 })).toThrow(
      /while a graph is being captured/,
    );
    const graph = Graph.capture(() => scope(() => void out.add_(1)), { warmups: 0 });
    graph.replay();
    expect(out.numbers()).toEqual([1, 1, 1, 1]);
    graph.dispose();
    out.dispose();
  });

  it('a capture that the driver breaks off is an error, and the next one works', () => {
    const result = runProgram(`
      import { Graph, keep, scope, zeros } from './src/tensor/index.ts';
      const out = keep(zeros([2], { device: 'cuda:0' }));
      let refused = '';
      try { Graph.capture(() => void out.numbers(), { warmups: 0 }); } catch (error) { refused = error.message; }
      const graph = Graph.capture(() => scope(() => void out.add_(1)), { warmups: 0 });
      graph.replay();
      console.log(JSON.stringify({ refused: refused !== '', numbers: out.numbers() }));
      graph.dispose();
    `);
    expect(result.signal, result.stderr).toBeNull();
    expect(JSON.parse(result.stdout), result.stderr).toEqual({ refused: true, numbers: [1, 1] });
  });

  it('calls in the wrong order are errors', () => {
    const [first, second] = [native.graphMake(0), native.graphMake(0)];
    expect(() => native.graphBegin(first, -1)).toThrow(/default stream cannot be captured/);
    expect(() => native.graphEnd(first)).toThrow(/is not being captured/);
    expect(() => native.graphReplay(first)).toThrow(/has not been captured/);
    new Stream(0).run(() => {
      expect(() => native.graphBegin(first, second)).toThrow(/to share memory with is not captured/);
      expect(() => native.graphBegin(first, first)).toThrow(/to share memory with is not captured/);
      expect(() => native.graphBegin(first, -2)).toThrow(/not a graph/);
      native.graphBegin(first, -1);
      expect(() => native.graphBegin(first, -1)).toThrow(/while a graph is being captured/);
      expect(() => native.graphBegin(second, -1)).toThrow(/while a graph is being captured/);
      expect(() => native.graphEnd(second)).toThrow(/is not being captured/);
      expect(() => native.graphReplay(first)).toThrow(/has not been captured/);
      expect(() => native.graphFree(first)).toThrow(/while a graph is being captured/);
      expect(() => native.cudaSynchronize(0)).toThrow(/while a graph is being captured/);
      expect(() => native.cudaEmptyCache()).toThrow(/while a graph is being captured/);
      native.graphEnd(first);
      expect(() => native.graphEnd(first)).toThrow(/is not being captured/);
      expect(() => native.graphBegin(first, -1)).toThrow(/captured once/);
      native.graphBegin(second, first);
      expect(() => native.graphFree(first)).toThrow(/while a graph is being captured/);
      native.graphEnd(second);
    });
    native.graphReplay(first);
    native.graphReplay(second);
    synchronize();
    for (const graph of [first, second]) native.graphFree(graph);
    expect(() => native.graphReplay(first)).toThrow(/not a graph/);
  });
});
