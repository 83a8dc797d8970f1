/**
 * `npm run bench -- dist-soak [--kills 40] [--ranks 2] [--plain]`: a training whose ranks are killed (SIGKILL, any rank, at random moments)
 * until so many have been, each time going on from the last checkpoint; the final weights must be those of a training that
 * nobody disturbed, bit for bit. With `--exact`; or, with `--plain`, without it on a wider model whose gradients are added up in
 * memory that the ranks share, which gives the same bits for the same number of ranks.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { Random } from '../src/random.ts';
import { corpusRows } from '../src/tasks/index.ts';
import { tinyModel } from '../tests/support/tiny-model.ts';
import type { Reading } from './run.ts';

const attune = fileURLToPath(new URL('../bin/attune.mjs', import.meta.url));

export async function* run(args: string[]): AsyncGenerator<Reading> {
  const { values } = parseArgs({
    args,
    options: {
      kills: { type: 'string', default: '40' },
      ranks: { type: 'string', default: '2' },
      plain: { type: 'boolean', default: false },
      seed: { type: 'string', default: '1' },
    },
  });
  const [kills, ranks] = [Number(values.kills), Number(values.ranks)];
  const folder = mkdtempSync(join(tmpdir(), 'attune-dist-soak-'));
  const model = await tinyModel(join(folder, 'model'), { hiddenSize: values.plain ? 128 : 32 });
  const dataset = join(folder, 'chats.jsonl');
  writeFileSync(
    dataset,
    [...corpusRows('sft', { tasks: 'chain_sum:2', count: 64, seed: 3 })].map((row) => JSON.stringify(row)).join('\n'),
  );
  const launch = (runName: string) =>
    spawn(
      process.execPath,
      [
        ...[
          attune,
          'launch',
          '--nproc',
          String(ranks),
          '--max-restarts',
          String(kills + 1),
          '--',
          'train',
          'sft',
          ...(values.plain ? [] : ['--exact']),
        ],
        ...['--model', model, '--dataset', dataset, '--output-dir', folder, '--run-name', runName, '--batch-size', '2'],
        ...[
          '--grad-accum',
          '3',
          '--epochs',
          '1000',
          '--max-steps',
          String(20 + 10 * kills),
          '--save-steps',
          '5',
          '--save-total-limit',
          '3',
        ],
        ...['--eval-steps', '-1', '--validation-split', '0', '--report-to', 'none'],
      ],
      {
        env: { ...process.env, ATTUNE_THREADS: '1', ATTUNE_CACHE: join(folder, 'cache') },
        stdio: ['ignore', 'ignore', 'pipe'],
      },
    );
  const ended = (child: ChildProcess) => new Promise<number | null>((resolve) => child.on('close', resolve));
  const calm = launch('undisturbed');
  calm.stderr.resume();
  if ((await ended(calm)) !== 0) throw new Error('the undisturbed training failed');

  const child = launch('disturbed');
  const code = ended(child);
  let said = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    said += text;
  });
  const random = new Random('kills', values.seed);
  const newest = () => Math.max(-1, ...stepsOf(join(folder, 'disturbed')));
  let killed = 0;
  for (let reached = -1; killed < kills && child.exitCode === null; ) {
    // The next moment: anywhere between a checkpoint and a little after the next one.
    while (newest() <= reached && child.exitCode === null) await sleep(10);
    reached = newest();
    await sleep(random.int(0, 400));
    const pids = ranksOf(child);
    const pid = pids[random.int(0, Math.max(0, pids.length - 1))];
    if (pids.length < ranks || pid === undefined) continue;
    process.kill(pid, 'SIGKILL');
    killed++;
  }
  const exit = await code;
  const weights = (name: string) => readFileSync(join(folder, name, 'final/model.safetensors'));
  const same = exit === 0 && weights('disturbed').equals(weights('undisturbed'));
  yield {
    name: `${killed} kills of ${ranks} ranks${values.plain ? ', plain' : ''}`,
    exit_code: String(exit),
    same_weights: String(same),
    restarts: said.split('restart ').length - 1,
  };
  rmSync(folder, { recursive: true });
  if (!same) {
    console.error(said.slice(-3000));
    process.exitCode = 1;
  }
}

const stepsOf = (run: string) =>
  existsSync(run) ? readdirSync(run).flatMap((name) => Number(/^step-(\d+)$/.exec(name)?.[1] ?? Number.NaN) || []) : [];

function ranksOf({ pid }: ChildProcess): number[] {
  try {
    return readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ').filter(Boolean).map(Number);
  } catch {
    return [];
  }
}
