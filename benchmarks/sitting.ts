/**
 * The rows of README.md's table in one sitting: `decode` and `train`, each in a process of its own, one after the other, and their peers.
 *
 *     npm run bench -- sitting [--device cuda] [--minutes 9] [--parts decode,decode-int8,train,train-int8,long,peers] [--repeats 2] [--out sitting.jsonl]
 *
 * Readings go to the file as they come. When the time is over, what runs is ended, and the table says what it has. `long`: 250 GRPO steps
 * and one long sequence; `peers`: plain transformers on the same shapes, then its compiled decoding with a static cache, in one process that is
 * started with the part before it: on a lent machine Python may take more than a minute until it has imported everything.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { appendFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { parseArgs } from 'node:util';
import { UserError } from '../src/errors.ts';
import { threads } from '../src/tensor/index.ts';
import { type PeerReading, python } from './support/peer.ts';
import { CPU_LENGTHS, GPU_LENGTHS, LLAMA_15M, QWEN3_06B } from './support/shapes.ts';

interface Reading {
  part: string;
  name: string;
  tokensPerSecond: number;
  peakGiB?: number;
}

/** The parts that are plain transformers, and those that are its compiled decoding. */
const PEERS = 'peers';
const COMPILED = 'compiled';

/** What Python reads, in this order, with the name of our case. */
const peerCases = (cuda: boolean): Record<string, string> =>
  cuda
    ? {
        rm: 'rm',
        dpo: 'dpo',
        gen128: '0.6b:128',
        gen16: '0.6b:16',
        grpo: 'grpo',
        gen16_strong: '0.6b:16',
        gen128_strong: '0.6b:128',
      }
    : { rm: 'rm', grpo: 'grpo' };

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
    [PEERS]: [],
  };
}

interface Running {
  child: ChildProcess;
  /** Whether it came to its end by itself. */
  ended: Promise<boolean>;
}

/** A process that ends with this one, and its children with it; its lines of JSON are handed over as they come. */
function started(program: string, args: string[], stdin: 'ignore' | 'pipe', each: (line: object) => void): Running {
  const child = spawn(program, args, { stdio: [stdin, 'pipe', 'inherit'], detached: true });
  const end = () => kill(child);
  process.once('exit', end);
  const ended = new Promise<boolean>((resolve) => {
    child.once('error', () => resolve(false)); // there is no such program
    child.once('close', (code) => resolve(code === 0));
  }).finally(() => process.off('exit', end));
  child.stdin?.on('error', () => {}); // it has ended, which `ended` says
  if (child.stdout)
    createInterface({ input: child.stdout }).on('line', (line) => {
      if (line.startsWith('{"benchmark"') || line.startsWith('{"case"')) each(JSON.parse(line));
    });
  return { child, ended };
}

/** Waits for so long at most; whether it came to its end. */
async function finished({ child, ended }: Running, milliseconds: number): Promise<boolean> {
  const timer = setTimeout(() => kill(child), milliseconds);
  const isWhole = await ended;
  clearTimeout(timer);
  return isWhole;
}

const ours = (args: string[], each: (line: object) => void): Running =>
  started(
    process.execPath,
    [join(import.meta.dirname, `run${import.meta.filename.slice(-3)}`), ...args],
    'ignore',
    each,
  );

/** Python, which imports what it needs and then waits for a line. */
function peers(cuda: boolean, each: (line: object) => void): Running {
  const script = join(import.meta.dirname, 'models_peer.py');
  const work = [
    '--cases',
    Object.keys(peerCases(cuda)).join(','),
    '--shape',
    JSON.stringify(cuda ? QWEN3_06B : LLAMA_15M),
  ];
  const lengths = ['--lengths', (cuda ? GPU_LENGTHS : CPU_LENGTHS).join(',')];
  const on = cuda ? ['--device', 'cuda', '--repeats', '1'] : ['--threads', String(threads())];
  return started(python, [script, '--wait', ...work, ...lengths, ...on], 'pipe', each);
}

function kill({ pid }: ChildProcess): void {
  try {
    if (pid !== undefined) process.kill(-pid, 'SIGKILL');
  } catch {} // it has ended
}

/** A row for each case: its figure, that with the 8-bit cache, the memory, and the peers'. */
function tableOf(readings: readonly Reading[]): string {
  const rows = Map.groupBy(readings, ({ name }) => name.replace(/ int8$/, ''));
  const lines = Array.from(rows, ([name, all]) => {
    const ofPart = (fits: (part: string) => boolean) => all.find(({ part }) => fits(part));
    const eight = ofPart((part) => part.endsWith('-int8'))?.tokensPerSecond;
    const plain = ofPart((part) => part !== PEERS && part !== COMPILED && !part.endsWith('-int8'));
    const beside = [PEERS, COMPILED].map((kind) => ofPart((part) => part === kind)?.tokensPerSecond);
    const best = Math.max(...beside.map((rate) => rate ?? 0));
    const times = best > 0 && plain ? (plain.tokensPerSecond / best).toFixed(1) : undefined;
    const cells = [name, plain?.tokensPerSecond, eight, plain?.peakGiB, ...beside, times];
    return cells.map((value) => value?.toLocaleString('en') ?? '');
  });
  const head = [
    'case',
    'tokens/s',
    '8-bit cache',
    'peak GiB',
    'transformers',
    'compiled, static cache',
    'times the faster',
  ];
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
  const cuda = values.device.startsWith('cuda');
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
  const add = (reading: Reading) => {
    readings.push(reading);
    appendFileSync(values.out, `${JSON.stringify(reading)}\n`);
    console.log(`${reading.part}: ${reading.name} ${reading.tokensPerSecond} tokens/s`);
  };
  const addPeer = ({ case: name, tokens_per_s, peak_gib, error }: PeerReading) => {
    if (tokens_per_s === undefined) return console.log(`${PEERS}: ${name}: ${error}`);
    const memory = peak_gib === undefined ? {} : { peakGiB: peak_gib };
    const part = name.endsWith('_strong') ? COMPILED : PEERS;
    add({ part, name: peerCases(cuda)[name] ?? name, tokensPerSecond: tokens_per_s, ...memory });
  };
  let beside: Running | null = null;
  for (const [i, part] of parts.entries()) {
    const begun = performance.now();
    if (part === PEERS || parts[i + 1] === PEERS) beside ??= peers(cuda, (line) => addPeer(line as PeerReading));
    let running = beside;
    if (part !== PEERS)
      running = end > begun ? ours(all[part] as string[], (line) => add({ ...(line as Reading), part })) : null;
    else beside?.child.stdin?.end('\n');
    const isWhole = running !== null && (await finished(running, Math.max(0, end - begun)));
    if (!isWhole) missing.push(part);
    console.log(`${part}: ${((performance.now() - begun) / 1000).toFixed(0)} s`);
  }
  console.log(`\n${tableOf(readings)}`);
  if (missing.length > 0) console.log(`\nNot whole: ${missing.join(', ')}.`);
}
