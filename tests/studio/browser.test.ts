/**
 * The studio in a real browser over real runs, in the order in which one would use it. Each case reloads the page in
 * its middle: what was shown, typed or chosen has to be there afterwards.
 */

import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { browserPath } from '../../scripts/chromium.ts';
import { aroundCases } from './browser/around.cases.ts';
import { chatCases } from './browser/chat.cases.ts';
import { rolloutCases } from './browser/rollouts.cases.ts';
import { runCases } from './browser/runs.cases.ts';
import { shiftCases } from './browser/shift.cases.ts';
import { strangerCases } from './browser/strangers.cases.ts';
import { trainingCases } from './browser/training.cases.ts';
import { World } from './browser/world.ts';

const path = browserPath();
const missing = 'no Chromium on this machine: install one, or name it in CHROME_PATH';
if (path === undefined) console.log(`studio in a browser: not tested here, ${missing}`);

describe.skipIf(path === undefined)(path === undefined ? missing : 'in a browser', () => {
  let world: World;
  beforeAll(async () => {
    world = await World.open(path as string);
  });
  afterAll(() => world[Symbol.asyncDispose]());

  const shared = () => world;
  runCases(shared);
  rolloutCases(shared);
  chatCases(shared);
  trainingCases(shared);
  shiftCases(shared);
  aroundCases(shared);
  strangerCases(shared);

  it('wrote no error into its console and asked no other host', () => {
    expect(world.problems).toEqual([]);
  });
});
