import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { preferenceRows } from '../../tests/support/preference-rows.ts';
import { tinyModel } from '../../tests/support/tiny-model.ts';
import { WorldError } from '../dist/failure.ts';
import { explainOutOfMemory, isOutOfMemory } from './out-of-memory.ts';
import { trainPreference } from './preference/preference.ts';

const GiB = 2 ** 30;
const cuda = new Error(
  'CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 15.77 GiB of which 812.00 MiB is free.',
);
const cpu = new Error(
  "[enforce fail] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 4294967296 bytes. Error code 12",
);

describe('an error of libtorch', () => {
  it('is known by its words', () => {
    for (const error of [cuda, cpu, new Error('std::bad_alloc')]) expect(isOutOfMemory(error)).toBe(true);
    expect(isOutOfMemory(new Error('index out of range in self'))).toBe(false);
    expect(isOutOfMemory(explainOutOfMemory(cuda, 'training a step'))).toBe(false);
    expect(isOutOfMemory(new WorldError(`Rank 1 has ended the run: ${cuda.message}`))).toBe(false);
  });

  it('becomes what was being done, what it needed, what is free and the three options that help most', () => {
    const needs = {
      totalBytes: 20 * GiB,
      device: 'cuda:0' as const,
      remedies: [
        { option: '--max-length 512', totalBytes: 18 * GiB },
        { option: '--lora', totalBytes: 6 * GiB },
        { option: '--dtype float32', totalBytes: 40 * GiB },
        { option: '--gradient-checkpointing', totalBytes: 9.5 * GiB },
        { option: '--batch-size 4 --grad-accum 8', totalBytes: 12 * GiB },
      ],
    };
    expect(explainOutOfMemory(cuda, 'training step 3', needs).message).toBe(
      [
        'There was not enough memory for training step 3: it asked for 2.5 GiB more, and 812 MiB of cuda:0 are free.',
        'By the memory plan the run takes about 20.0 GiB in all. What would help most:',
        '  --lora: about 6.0 GiB, 14.0 GiB less',
        '  --gradient-checkpointing: about 9.5 GiB, 10.5 GiB less',
        '  --batch-size 4 --grad-accum 8: about 12.0 GiB, 8.0 GiB less',
      ].join('\n'),
    );
  });

  it('on a CPU asks the machine what is free', () => {
    const { message } = explainOutOfMemory(cpu, 'loading the model');
    expect(message).toMatch(/^There was not enough memory for loading the model: it asked for 4\.0 GiB more, and \d/);
  });
});

it('names three options with what each takes when a trainer runs out of memory', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'attune-memory-'));
  try {
    const model = await tinyModel(join(folder, 'model'));
    const data = { dataset: preferenceRows(16), validationSplit: 0, evalSteps: -1, reportTo: ['none' as const] };
    const size = { batchSize: 16, gradAccum: 1, maxSteps: 2 };
    const failing = trainPreference(
      { model, ...data, ...size, outputDir: folder },
      { cache: false, run: { curves: false }, onStep: () => Promise.reject(cpu) },
    );
    const failure = await failing.then(
      () => undefined,
      (error: unknown) => error as Error,
    );
    const lines = failure?.message.split('\n') ?? [];
    expect(lines[0]).toMatch(/^There was not enough memory for training: it asked for 4\.0 GiB more/);
    expect(lines[1]).toMatch(/the run takes about \d+ MiB in all/);
    const remedies = lines.slice(2).map((line) => /^ {2}(--[a-z-]+).*: about (\d+) MiB, (\d+) MiB less$/.exec(line));
    expect(remedies).toHaveLength(3);
    const total = Number(/about (\d+) MiB/.exec(lines[1] as string)?.[1]);
    for (const remedy of remedies) {
      const [, , takes, less] = (remedy ?? []).map(Number);
      expect(less).toBeGreaterThan(0);
      // each number is rounded to whole MiB
      expect(Math.abs(total - (takes as number) - (less as number))).toBeLessThanOrEqual(1);
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
});
