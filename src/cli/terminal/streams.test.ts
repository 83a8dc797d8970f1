import { EventEmitter } from 'node:events';
import { setImmediate } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { onInterrupt, type SignalSource } from './interrupt.ts';
import { type Program, surviveClosedOutput } from './streams.ts';
import { endUnfinished } from './unfinished.ts';

function program() {
  const exits: unknown[] = [];
  const said: string[] = [];
  const fake = Object.assign(new EventEmitter(), {
    stdout: new EventEmitter(),
    stderr: Object.assign(new EventEmitter(), { write: (text: string) => void said.push(text) }),
    exitCode: undefined as number | undefined,
    exit: (code?: unknown) => void exits.push(code),
  });
  surviveClosedOutput(fake as Program);
  return { fake, exits, said };
}
const failure = (code: string) => Object.assign(new Error(code), { code });

it.each(['EIO', 'EPIPE'])('a run is asked to save when its output ends with %s, once', async (code) => {
  const { fake, exits } = program();
  const asked: string[] = [];
  using interrupt = onInterrupt(
    (name) => {
      asked.push(name);
      // Saying so on the dead terminal fails as well, and must not end the run.
      fake.stderr.emit('error', failure(code));
    },
    fake as unknown as SignalSource,
  );
  fake.stderr.emit('error', failure(code));
  fake.stdout.emit('error', failure(code));
  await setImmediate();
  expect([asked, interrupt.signal.aborted, exits]).toEqual([['SIGHUP'], true, []]);
});

it('a command that saves nothing ends quietly, with its own code where it was done', async () => {
  const unfinished = program();
  unfinished.fake.stdout.emit('error', failure('EPIPE'));
  const finished = program();
  finished.fake.exitCode = 2;
  finished.fake.stdout.emit('error', failure('EIO'));
  await setImmediate();
  expect([unfinished.exits, finished.exits]).toEqual([[141], [2]]);
});

it('so does one that writes a file, whose part is removed at the exit', async () => {
  const { fake, exits } = program();
  fake.on('SIGHUP', endUnfinished);
  fake.stderr.emit('error', failure('EPIPE'));
  await setImmediate();
  expect(exits).toEqual([141]);
});

it('says that standard output is on a full disk, once, and ends with 2 also where the command was done', async () => {
  const { fake, exits, said } = program();
  fake.exitCode = 0;
  fake.stdout.emit('error', failure('ENOSPC'));
  fake.stdout.emit('error', failure('ENOSPC'));
  await setImmediate();
  expect(said).toEqual(['attune: standard output cannot be written: the disk is full.\n']);
  expect(exits).toEqual([2, 2]);
});
