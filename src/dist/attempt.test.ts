import { expect, it } from 'vitest';
import { native } from '../tensor/engine/native.ts';
import { commandOfAttempt, tellFolder } from './attempt.ts';
import type { RunFolder } from './beat.ts';
import { freePort } from './meeting.ts';
import { SharedStore } from './store.ts';

it("goes on with the run of the attempt before, which torchrun's store has kept", async () => {
  const port = await freePort();
  const agent = new SharedStore(await native.storeTcp('127.0.0.1', port, true, 60_000, ''));
  const rank = (number: number, attempt: number) => ({
    ...{
      RANK: `${number}`,
      WORLD_SIZE: '2',
      LOCAL_RANK: `${number}`,
      MASTER_ADDR: '127.0.0.1',
      MASTER_PORT: `${port}`,
    },
    ...{ TORCHELASTIC_USE_AGENT_STORE: 'True', TORCHELASTIC_RESTART_COUNT: `${attempt}`, ATTUNE_DIST_START: '60' },
  });
  const command = ['train', 'sft', '--run-name', 'a'];
  const seen: (RunFolder | undefined)[] = [];
  const goOn = (folder: RunFolder | undefined) => {
    seen.push(folder);
    return [...command, '--resume-from', String(folder?.path)];
  };
  expect(await commandOfAttempt(command, goOn, rank(1, 0))).toEqual(command);
  await tellFolder({ path: 'runs/a', isNew: true }, rank(0, 0));
  await agent.abort({ rank: 0, reason: 'rank 1 was killed' });
  // Rank 0 decides, the other one waits for it.
  const resumed = [...command, '--resume-from', 'runs/a'];
  const second = commandOfAttempt(command, goOn, rank(1, 1));
  expect(await commandOfAttempt(command, goOn, rank(0, 1))).toEqual(resumed);
  expect(await second).toEqual(resumed);
  // The run is still one that this launch created.
  await tellFolder({ path: 'runs/a', isNew: false }, rank(0, 1));
  expect(await commandOfAttempt(command, goOn, rank(0, 2))).toEqual(resumed);
  expect(seen).toEqual([
    { path: 'runs/a', isNew: true },
    { path: 'runs/a', isNew: true },
  ]);
});

it('leaves the command of any other launch as it is', async () => {
  const fail = () => expect.unreachable();
  const torchrun = { RANK: '0', WORLD_SIZE: '2', LOCAL_RANK: '0', MASTER_ADDR: 'x', TORCHELASTIC_RESTART_COUNT: '1' };
  for (const env of [{}, torchrun]) expect(await commandOfAttempt(['train'], fail, env)).toEqual(['train']);
});
