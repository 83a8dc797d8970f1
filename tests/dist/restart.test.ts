/** Commands that are started again after a failure that nobody of attune saw: an operator's pods. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { freePort } from '../../src/dist/meeting.ts';
import { readMetrics } from '../../src/runs/index.ts';
import { endless, LaunchBed, ranksOf, until } from './launched.ts';

let bed: LaunchBed;
beforeAll(async () => {
  bed = await LaunchBed.make();
});
afterAll(() => bed[Symbol.dispose]());

const pod = async () => ({
  ...{ RANK: '0', WORLD_SIZE: '1', PET_NNODES: '1', PET_NODE_RANK: '0', PET_NPROC_PER_NODE: '2' },
  ...{ MASTER_ADDR: '127.0.0.1', MASTER_PORT: String(await freePort()) },
});

const stepsOf = (run: string) => {
  const path = join(bed.run(run), 'metrics.jsonl');
  return existsSync(path) ? readMetrics(path).map(({ step }) => step) : [];
};

const lives = (pid: number) => {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
};

it('begins anew in the folder of a pod that ended before its first checkpoint; a plain command is refused', async () => {
  const command = bed.train('pod', endless, '--save-steps', '1000000');
  const first = bed.attune(command, await pod());
  await until(() => stepsOf('pod').length > 2, first);
  const ranks = ranksOf(first);
  first.child.kill('SIGKILL');
  while (ranks.some(lives)) await sleep(20);

  const plain = bed.attune(command);
  expect(await plain.code, plain.said()).toBe(2);
  expect(plain.said()).toMatch(
    /^attune: The run \S+ exists, and has no checkpoint to go on from\. .*attune runs delete pod --folder \S+\n$/,
  );

  const second = bed.attune(command, await pod());
  await until(() => /^run \S+pod, [\d,]+ steps$/m.test(second.said()) && stepsOf('pod').length > 0, second);
  second.child.kill('SIGTERM');
  expect(await second.code, second.said()).toBe(143);
  const steps = stepsOf('pod');
  expect(steps).toEqual(steps.map((_, i) => i + 1));
  expect(bed.newest('pod')).toBe(steps.length);
}, 900_000);
