/**
 * The rows of README.md's table in one sitting: `decode` and `train`, each in a process of its own, one after the other.
 *
 *     npm run bench -- sitting [--device cuda] [--minutes 9] [--parts decode,decode-int8,train,train-int8,long,peers] [--repeats 2] [--out sitting.jsonl]
 *
 * Readings go to the file as they come. When the time is over, what runs is ended, and the table says what it has. `long`: 250 GRPO steps
 * and one long sequence; `peers`: the steps beside plain transformers, in the same minutes.
 */
import { spawn } from 'node:child_process';
import { appendFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { parseArgs } from 'node:util';
import { UserError } from '../src/errors.ts';

interface Reading {
  part: string;
  name: string;
  tokensPerSecond: number;
  peakGiB?: number;
  peerTokensPerSecond?: number;
}

/** The command of each part, in the order in which they are worth their time. */
function partsOn(device: string, repeats: string): Record<string, string[]> {
  const cuda = device.startsWith('cuda');
  const on = ['--device', device];
  const decode = ['decode', ...on, '--repeats', repeats];
  const train = (cases: string, ...rest: string[]) => ['train', ...on, ...rest, '--cases', cases];
  return {
    decode,
    'decode-int8': [...decode, '--cache-dtype', 'int8'],
    train: train(cuda ? 'rm,rm_ckpt,dpo,dpo_lora,dpo_prompts,grpo,grpo16' : 'rm,dpo,dpo_lora,grpo', '--no-peer'),
    'train-int8': train(cuda ? 'grpo,grpo16' : 'grpo', '--no-peer', '--cache-dtype', 'int8'),
    ...(cuda ? { long: train('gap,long,long_ckpt') } : {}),
    peers: train('rm,dpo,grpo'),
  };
}

/** Runs a benchmark for so long at most and hands over its readings; whether it came to its end. */
async function readingsOf(args: string[], milliseconds: number, each: (reading: Reading) => void): Promise<boolean> {
  const program = join(import.meta.dirname, `run${import.meta.filename.slice(-3)}`);
  const child = spawn(process.execPath, [program, ...args], {
    stdio: ['ignore', 'pipe', 'inherit'],
    detached: true, // its peers in Python end with it
  });
  const end = () => void process.kill(-(child.pid as number), 'SIGKILL');
  const timer = setTimeout(end, milliseconds);
  process.once('exit', end);
  const ended = new Promise<boolean>((resolve) => child.once('close', (code) => resolve(code === 0)));
  for await (const line of createInterface({ input: child.stdout }))
    if (line.startsWith('{"benchmark"')) each(JSON.parse(line));
  const isWhole = await ended;
  clearTimeout(timer);
  process.off('exit', end);
  return isWhole;
}

/** A row for each case: its figure, that with the 8-bit cache, the memory, and the peer's. */
function tableOf(readings: readonly Reading[]): string {
  const rows = Map.groupBy(readings, ({ name }) => name.replace(/ int8$/, ''));
  const lines = Array.from(rows, ([name, all]) => {
    const of = (isEightBits: boolean) => all.find(({ part }) => part.endsWith('-int8') === isEightBits);
    const beside = all.find(({ peerTokensPerSecond }) => peerTokensPerSecond !== undefined);
    const figures = [of(false)?.tokensPerSecond, of(true)?.tokensPerSecond, of(false)?.peakGiB];
    const peer = beside && [
      beside.peerTokensPerSecond,
      (beside.tokensPerSecond / (beside.peerTokensPerSecond ?? 1)).toFixed(1),
    ];
    return [name, ...figures, ...(peer ?? [undefined, undefined])].map((value) => value?.toLocaleString('en') ?? '');
  });
  const head = ['case', 'tokens/s', '8-bit cache', 'peak GiB', 'peer', 'times the peer'];
  return [head, ['---', ...head.slice(1).map(() => '--:')], ...lines]
    .map((cells) => `| ${cells.join(' | ')} |`)
    .join('\n');
}

export async function run(args: string[]): Promise<void> {
  const options = {
    device: { type: 'string', default: 'cpu' },
    minutes: { type: 'string', default: '60' },
    parts: { type: 'string' },
    repeats: { type: 'string', default: '2' },
    out: { type: 'string', default: 'sitting.jsonl' },
  } as const;
  const { values } = parseArgs({ args, options });
  const all = partsOn(values.device, values.repeats);
  const parts = (values.parts ?? Object.keys(all).join(',')).split(',');
  for (const part of parts)
    if (!(part in all))
      throw new UserError(`--parts: there is no "${part}" here; there are ${Object.keys(all).join(', ')}.`);
  const minutes = Number(values.minutes);
  if (!(minutes > 0)) throw new UserError(`--minutes is a number above 0, not "${values.minutes}".`);
  const end = performance.now() + minutes * 60_000;
  const readings: Reading[] = [];
  const missing: string[] = [];
  writeFileSync(values.out, '');
  for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => process.exit(130));
  for (const part of parts) {
    const started = performance.now();
    const isWhole =
      end > started &&
      (await readingsOf(all[part] as string[], end - started, (reading) => {
        readings.push({ ...reading, part });
        appendFileSync(values.out, `${JSON.stringify({ ...reading, part })}\n`);
        console.log(`${part}: ${reading.name} ${reading.tokensPerSecond} tokens/s`);
      }));
    if (!isWhole) missing.push(part);
    console.log(`${part}: ${((performance.now() - started) / 1000).toFixed(0)} s`);
  }
  console.log(`\n${tableOf(readings)}`);
  if (missing.length > 0) console.log(`\nNot whole: ${missing.join(', ')}.`);
}
