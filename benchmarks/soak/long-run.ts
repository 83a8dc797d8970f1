/**
 * One long run of a tiny model whose memory is read at every hundredth of it:
 *
 *     node [--expose-gc] benchmarks/soak/long-run.ts <folder> <rows> <steps> <seed>       prints a JSON line per reading
 *
 * With --expose-gc a collection comes before each reading: `heap` is then what JavaScript holds, and no more. `heapRoom` is
 * what V8 keeps for it, `mallocHeap` what malloc keeps, `hugePages` the part that the kernel has rounded up to 2 MiB.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { packageRoot } from '../../src/tensor/engine/native.ts';
import { liveTensors } from '../../src/tensor/index.ts';
import { trainSft } from '../../src/trainers/sft/sft.ts';
import { writeModelConfig } from './model.ts';

export interface MemoryReading {
  step: number;
  tensors: number;
  resident: number;
  heap: number;
  heapRoom: number;
  external: number;
  mallocHeap: number;
  hugePages: number;
}

const [folder, dataset, stepsText, seed] = process.argv.slice(2) as [string, string, string, string];
const steps = Number(stepsText);
const collect = (globalThis as { gc?: () => void }).gc ?? (() => {});
const mebibytes = (bytes: number) => Math.round((10 * bytes) / 2 ** 20) / 10;
const kilobytes = (text: string, field: string) =>
  Number(new RegExp(`^${field}:\\s+(\\d+) kB`, 'm').exec(text)?.[1] ?? 0);

function read(step: number): MemoryReading {
  collect();
  const { rss, external, heapUsed, heapTotal } = process.memoryUsage();
  const maps = readFileSync('/proc/self/smaps', 'utf8');
  const mallocHeap = maps.slice(Math.max(0, maps.search(/^.*\[heap\]$/m)));
  return {
    step,
    tensors: liveTensors(),
    resident: mebibytes(rss),
    heap: mebibytes(heapUsed),
    heapRoom: mebibytes(heapTotal),
    external: mebibytes(external),
    mallocHeap: mebibytes(1024 * kilobytes(mallocHeap, 'Rss')),
    hugePages: mebibytes(1024 * kilobytes(readFileSync('/proc/self/smaps_rollup', 'utf8'), 'AnonHugePages')),
  };
}

const training = trainSft(
  {
    fromConfig: writeModelConfig(folder),
    tokenizer: join(packageRoot, 'models/tiny'),
    dataset,
    maxSteps: steps,
    seed: Number(seed),
    epochs: steps,
    batchSize: 2,
    gradAccum: 1,
    maxLength: 64,
    evalSteps: -1,
    saveSteps: -1,
    logSteps: 100,
    outputDir: folder,
    logDir: join(folder, 'logs'),
    runName: 'long',
    reportTo: ['none'],
  },
  { cache: false, run: { curves: false } },
);
const every = Math.max(1, Math.floor(steps / 100));
for await (const { step } of training) if (step % every === 0) console.log(JSON.stringify(read(step)));
