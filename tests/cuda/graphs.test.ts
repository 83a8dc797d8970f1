/** Streams and captured graphs. */
import { expect, it } from 'vitest';
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

  it('a body that throws ends the capture, and the next one works', () => {
    expect(() =>
      Graph.capture(() => {
        throw new Error('mid-capture');
      }),
    ).toThrow('mid-capture');
    const out = keep(zeros([4], { device: 'cuda:0' }));
    const graph = Graph.capture(() => scope(() => void out.add_(1)), { warmups: 0 });
    graph.replay();
    expect(out.numbers()).toEqual([1, 1, 1, 1]);
    graph.dispose();
    out.dispose();
  });
});
