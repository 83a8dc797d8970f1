/**
 * The memory of large CPU tensors is kept for the next ones, and never exceeds what was in use at once
 * (native/cpu/large_blocks.cc).
 */
import { expect, it } from 'vitest';
import { runProgram } from '../child.test-support.ts';

// AddressSanitizer has its own allocator
const unlessSanitized = it.skipIf(process.env.ASAN_OPTIONS !== undefined || process.platform !== 'linux');

function program(body: string): Record<string, number> {
  const { stdout, stderr } = runProgram(`
    import { scope, zeros } from './src/tensor/index.ts';
    const MiB = 2 ** 20;
    const fill = (mebibytes) => zeros([mebibytes * MiB / 4]);
    const faults = () => process.resourceUsage().minorPageFault;
    const resident = () => process.memoryUsage.rss() / MiB;
    zeros([1]).dispose(); // loads the engine
    ${body}
  `);
  expect(stderr).toBe('');
  return JSON.parse(stdout);
}

unlessSanitized('freed memory serves the next tensors, also where their sizes differ', () => {
  const report = program(`
    const step = (i) => scope(() => { const a = fill(20 + i % 5), b = fill(9 + i % 3), c = a.add(1); b.add(2); return c.sum().item(); });
    for (let i = 0; i < 6; i++) step(i);
    const [before, start] = [faults(), resident()];
    for (let i = 0; i < 40; i++) step(i);
    console.log(JSON.stringify({ faults: faults() - before, growth: resident() - start }));
  `);
  // 40 steps write 2,500 MiB, which would be 640,000 pages of 4 KiB
  expect(report.faults).toBeLessThan(60_000);
  expect(report.growth).toBeLessThan(24);
});

unlessSanitized('what is kept makes room for larger tensors', () => {
  const report = program(`
    const start = resident();
    for (let i = 0; i < 8; i++) fill(32).dispose();
    const once = resident() - start;
    const small = Array.from({ length: 8 }, () => fill(32));
    for (const tensor of small) tensor.dispose();
    const large = [fill(120), fill(120)];
    const together = resident() - start;
    console.log(JSON.stringify({ once, together, sum: large[1].sum().item() }));
  `);
  expect(report.once).toBeLessThan(32 + 24);
  expect(report.together).toBeLessThan(256 + 24);
  expect(report.sum).toBe(0);
});

unlessSanitized('what is kept counts as free', () => {
  const report = program(`
    import { freeBytes } from './src/tensor/index.ts';
    import { native } from './src/tensor/engine/native.ts';
    const tensor = fill(512);
    const [used, before] = [native.keptSize() / MiB, freeBytes('cpu') / MiB];
    tensor.dispose();
    console.log(JSON.stringify({ used, kept: native.keptSize() / MiB, gain: freeBytes('cpu') / MiB - before }));
  `);
  expect(report.used).toBeLessThan(16);
  expect(report.kept).toBeGreaterThanOrEqual(512);
  expect(report.gain).toBeGreaterThan(256); // of 512; other processes allocate and free memory meanwhile
});
