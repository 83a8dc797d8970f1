import { expect, it } from 'vitest';
import { checkCrowd, crowdNotes, launchCommand, launchDefaults } from './launch.ts';

it('says when there are more processes than cores', () => {
  expect(crowdNotes(2, 2, '1')).toEqual([]);
  expect(crowdNotes(99, 2, '1')).toEqual([
    'Attention: 99 processes on 2 cores: each gets 1 thread, and they take turns. On CPUs, more than 2 make nothing faster, and each needs memory of its own.',
  ]);
  expect(crowdNotes(2, 1, '4')[0]).toContain('on 1 core: each gets 4 threads');
});

it('refuses more processes than a machine can bear, unless it is told to', async () => {
  expect(() => checkCrowd(8, 1)).not.toThrow();
  expect(() => checkCrowd(32, 8)).not.toThrow();
  expect(() => checkCrowd(33, 8)).toThrow(
    '--nproc 33: this machine has 8 cores, and more than 32 processes would mostly wait for each other',
  );
  const flags = { ...launchDefaults, nproc: '99999' };
  await expect(launchCommand(['train', 'sft'], flags)).rejects.toThrow('--oversubscribe starts them nevertheless');
  // Further than this check: the port is looked at after it.
  const told = { ...flags, masterAddr: '192.0.2.1', oversubscribe: true };
  await expect(launchCommand(['train', 'sft'], told)).rejects.toThrow('192.0.2.1');
});

it.each([
  ['nodeRank', '', '--node-rank "": a whole number from 0'],
  ['nproc', '0x2', '--nproc 0x2: a whole number from 1'],
  ['masterPort', ' 29500', '--master-port  29500: a whole number from 1 to 65535'],
])('takes no number for %s from %j', async (name, text, message) => {
  const flags = { ...launchDefaults, nproc: '1', [name]: text };
  await expect(launchCommand(['train', 'sft'], flags)).rejects.toThrow(message);
});
