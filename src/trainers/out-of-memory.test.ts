import { describe, expect, it } from 'vitest';
import { explainOutOfMemory, isOutOfMemory } from './out-of-memory.ts';

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
