/** The recipes for clusters, with programs in place of npx, srun and nvidia-smi that say how they were called. */
import { spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { parse } from 'yaml';

const root = join(import.meta.dirname, '../..');
const recipes = join(root, 'recipes/cluster');
const folder = mkdtempSync(join(tmpdir(), 'attune-recipes-'));
afterAll(() => rmSync(folder, { recursive: true }));

const programs = join(folder, 'bin');
mkdirSync(programs);
for (const name of ['npx', 'srun', 'nvidia-smi']) {
  const path = join(programs, name);
  const says = name === 'nvidia-smi' ? 'for i in $(seq $GPUS); do echo GPU; done' : 'printf "%s\\n" "$@"';
  writeFileSync(path, `#!/bin/sh\n${says}\n`);
  chmodSync(path, 0o755);
}

/** The words that a script calls attune with. */
function called(args: readonly string[], env: Record<string, string> = {}): string[] {
  const { stdout, stderr, status } = spawnSync('bash', args, {
    cwd: folder,
    encoding: 'utf8',
    env: { PATH: `${programs}:${process.env.PATH}`, GPUS: '0', SLURM_CPUS_PER_TASK: '8', ...env },
  });
  expect(status, stderr).toBe(0);
  const words = stdout.trim().split('\n');
  return words.slice(words.indexOf('attune') + 1);
}

function checkpoint(run: string): void {
  mkdirSync(join(folder, run, 'step-100'), { recursive: true });
}

/** Options that a command does not know. */
function unknownIn(words: readonly string[], command: readonly string[]): string[] {
  const help = spawnSync(process.execPath, [join(root, 'bin/attune.mjs'), ...command, '--help'], { encoding: 'utf8' });
  return words.filter((word) => word.startsWith('--') && word !== '--' && !help.stdout.includes(`${word} `));
}

it('one box: a process for each GPU, two where there is none', () => {
  const script = [join(recipes, 'one-box.sh')];
  const words = called(script);
  expect(words.slice(0, 3)).toEqual(['launch', '--nproc', '2']);
  expect(called(script, { GPUS: '4' })[2]).toBe('4');
  expect(called(script, { RANKS: '3' })[2]).toBe('3');
  const command = words.indexOf('--') + 1;
  expect(unknownIn(words.slice(0, command), ['launch'])).toEqual([]);
  expect(unknownIn(words.slice(command), ['train', 'policy'])).toEqual([]);
});

it('Slurm: a job that is queued again goes on from the last checkpoint', () => {
  const script = [join(recipes, 'slurm.sbatch')];
  const words = called(script, { RUN: 'a' });
  expect(words).not.toContain('--resume-from');
  expect(unknownIn(words, ['train', 'sft'])).toEqual([]);
  checkpoint('checkpoints/sft/a');
  expect(called(script, { RUN: 'a' }).slice(-2)).toEqual(['--resume-from', './checkpoints/sft/a']);
});

it('Kubernetes: so do pods that are started anew', () => {
  const job = parse(readFileSync(join(recipes, 'pytorchjob.yaml'), 'utf8'), { merge: true });
  const { Master, Worker } = job.spec.pytorchReplicaSpecs;
  expect(Worker.template).toEqual(Master.template);
  const [container] = Master.template.spec.containers;
  expect(container.command).toEqual(['bash', '-c']);
  const script = (container.args[0] as string).replaceAll('/data', join(folder, 'data'));
  const words = called(['-c', script]);
  expect(words).not.toContain('--resume-from');
  expect(unknownIn(words, ['train', 'reward'])).toEqual([]);
  checkpoint('data/runs/reward');
  expect(called(['-c', script]).slice(-2)).toEqual(['--resume-from', join(folder, 'data/runs/reward')]);
});
