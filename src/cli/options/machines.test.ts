import { spawnSync } from 'node:child_process';
import { expect, it } from 'vitest';
import { type LaunchPart, missingLines, startCommand } from './machines.ts';

const part: LaunchPart = {
  ...{ nproc: 2, nnodes: 3, nodeRank: 0, masterAddr: 'node0', masterPort: 29500, more: ['--max-restarts', '3'] },
  ...{ command: ['train', 'sft', '--run-name', 'a b'], typed: 'attune' },
};
const launch = (machine: number) =>
  `  attune launch --nproc 2 --nnodes 3 --node-rank ${machine} --master-addr node0 --master-port 29500 --max-restarts 3 -- train sft --run-name 'a b'`;

it('names the machines that are missing, and what to start there', () => {
  expect(missingLines([2, 3], part)).toEqual([
    'attune launch: machine 1 (ranks 2 and 3) has not come to node0:29500. Start there:',
    launch(1),
  ]);
  expect(missingLines([2, 3, 4, 5], part, 300)).toEqual([
    'attune launch: machines 1, 2 (ranks 2, 3, 4 and 5) have not come to node0:29500. Waiting for up to 300 s (ATTUNE_DIST_START). Start there (and the same with --node-rank 2):',
    launch(1),
  ]);
  expect(missingLines([0], { ...part, nodeRank: 2 })).toEqual([
    'attune launch: machine 0 does not answer at node0:29500. Is it started, and does a firewall let the port through? Start there:',
    launch(0),
  ]);
});

it('says nothing of this machine’s own ranks, and offers no command where an operator starts the machines', () => {
  expect(missingLines([1], part)).toEqual([]);
  expect(missingLines([], part)).toEqual([]);
  const { typed: _, ...pod } = part;
  expect(missingLines([1, 4], pod)).toEqual([
    'attune launch: machine 2 (rank 4) has not come to node0:29500. An operator starts it: see its pods.',
  ]);
});

it('writes words as a shell reads them', () => {
  const words = ['plain', 'two words', "it's", '$HOME', 'a=b,c', '*', ''];
  const command = startCommand(1, { ...part, command: words }, 'printf "%s\\n"');
  const { stdout } = spawnSync('sh', ['-c', command], { encoding: 'utf8' });
  const said = stdout.split('\n');
  expect(said.slice(said.indexOf('--') + 1, -1)).toEqual(words);
});
