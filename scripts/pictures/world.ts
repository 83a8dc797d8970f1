/** The runs and data that the pictures show, trained by the command itself on the model that comes with attune. */
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { whatTrainingOffers } from '../../src/cli/studio.ts';
import type { ServerOptions } from '../../src/studio/server.ts';
import { preferenceRows } from '../../src/tasks/index.ts';

const repository = join(import.meta.dirname, '../..');
const program = join(repository, 'bin', 'attune.mjs');
export const tiny = join(repository, 'models', 'tiny');

export interface World {
  root: string;
  pairs: string;
}

const small = '--batch-size 4 --grad-accum 1 --group-size 4 --max-new-tokens 32 --eval-num-prompts 32';

/** Name of a run → how it is trained. A run that is there already is kept. */
const trainings: Record<string, string> = {
  arithmetic:
    'policy --task chain_sum:1,number_sorting:1,letter_counting:1 --kl-coef 0.02 --lr 2e-4 --batch-size 4 --grad-accum 1 --group-size 8 --max-new-tokens 64 --max-steps 80 --eval-steps 10 --eval-num-prompts 48 --save-steps 20 --save-tokens',
  ...Object.fromEntries(
    [1, 2, 3].map((seed) => [
      `sorting-seed-${seed}`,
      `policy --task number_sorting:1 --lr 3e-4 ${small} --max-steps 30 --eval-steps 5 --seed ${seed}`,
    ]),
  ),
  'sorting-too-fast': `policy --task number_sorting:1 --lr 3e-3 ${small} --max-steps 40 --eval-steps 10`,
  'on-pairs': 'preference --dataset pairs.jsonl --max-steps 40 --eval-steps 10 --batch-size 8 --grad-accum 1',
};

export async function makeWorld(root: string): Promise<World> {
  mkdirSync(root, { recursive: true });
  const pairs = join(root, 'pairs.jsonl');
  const rows = [...preferenceRows({ tasks: 'chain_sum:1,number_sorting:1', count: 240, seed: 3 })];
  writeFileSync(pairs, rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
  writeFileSync(
    join(root, 'GUIDELINES.md'),
    '# What is better\nThe response whose answer is right. Of two right ones the shorter.\n',
  );
  for (const [name, words] of Object.entries(trainings)) {
    const [kind = '', ...options] = words.split(' ');
    if (existsSync(join(root, kind, name, 'final'))) continue;
    const places = ['--output-dir', join(root, kind), '--log-dir', join(root, 'logs'), '--run-name', name];
    console.log(`training ${name} …`);
    const given = options.map((word) => (word === 'pairs.jsonl' ? pairs : word));
    await attune(['train', kind, '--model', 'models/tiny', ...given, ...places]);
  }
  return { root, pairs };
}

/** From the repository's folder: the pages then show the model as people name it. */
function attune(args: readonly string[]): Promise<void> {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [program, ...args], { cwd: repository, stdio: ['ignore', 'ignore', 'pipe'] });
    let errors = '';
    child.stderr.setEncoding('utf8').on('data', (text) => {
      errors = (errors + text).slice(-4000);
    });
    child.on('error', reject);
    child.on('close', (status) =>
      status === 0 ? resolve() : reject(new Error(`attune ${args.join(' ')} ended with ${status}:\n${errors}`)),
    );
  });
}

export function studioOptions(root: string): ServerOptions {
  return {
    root,
    port: 0,
    version: '',
    cache: join(root, '..', `${root.split('/').at(-1)}-cache`),
    page: join(repository, 'dist', 'studio-page'),
    modelFolders: [join(repository, 'models')],
    above: { ...whatTrainingOffers(), launcher: { file: process.execPath, args: [program] } },
  };
}
