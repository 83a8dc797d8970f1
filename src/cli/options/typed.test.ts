import { expect, it } from 'vitest';
import { launchedCommand, typedCommand } from './typed.ts';

const called = (script: string, env: NodeJS.ProcessEnv = {}) =>
  typedCommand({ argv: ['node', script], env, cwd: () => '/home/ada/attune' });

it.each([
  ['npm run attune -- demo', '/home/ada/attune/bin/attune.mjs', { npm_command: 'run-script' }, 'npm run attune --'],
  ['npx attune demo', '/home/ada/x/node_modules/attune/bin/attune.mjs', { npm_command: 'exec' }, 'npx attune'],
  ['an installed command', '/usr/local/bin/attune', {}, 'attune'],
  ['node bin/attune.mjs demo', '/home/ada/attune/bin/attune.mjs', {}, 'node bin/attune.mjs'],
  ['the bundle', '/opt/app/bin/attune.mjs', { ATTUNE_TYPED: './attune' }, './attune'],
  ['a folder with a space', '/opt/my tools/bin/attune.mjs', {}, "node '/opt/my tools/bin/attune.mjs'"],
])('%s', (_, script, env, typed) => expect(called(script, env)).toBe(typed));

it.each([
  ['alone', {}, 'npm run attune --'],
  [
    'two ranks',
    { ATTUNE_LAUNCH: 'a', WORLD_SIZE: '2', LOCAL_WORLD_SIZE: '2' },
    'npm run attune -- launch --nproc 2 --',
  ],
  ['several machines', { ATTUNE_LAUNCH: 'a', WORLD_SIZE: '4', LOCAL_WORLD_SIZE: '2' }, 'npm run attune --'],
])('a launched command: %s', (_, env, typed) => {
  const whole = { npm_command: 'run-script', ...env };
  expect(launchedCommand({ argv: [], env: whole, cwd: () => '/' })).toBe(typed);
});
