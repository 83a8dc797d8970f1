/** How the user called attune, so that advice shows a command that works when typed. */
import { relative, resolve } from 'node:path';
import { quoted } from '../../shell.ts';

/** The part of `process` that is used; tests replace it. */
export interface Called {
  argv: readonly string[];
  env: NodeJS.ProcessEnv;
  cwd(): string;
}

export function typedCommand({ argv, env, cwd }: Called = process): string {
  // Set by the bundle's launcher.
  if (env.ATTUNE_TYPED) return quoted(env.ATTUNE_TYPED);
  if (env.npm_command === 'run-script' || env.npm_command === 'run') return 'npm run attune --';
  if (env.npm_command === 'exec') return 'npx attune';
  const script = argv[1];
  if (script === undefined || !script.endsWith('.mjs')) return 'attune';
  const near = relative(cwd(), resolve(script));
  return `node ${quoted(near.startsWith('..') ? script : near)}`;
}

/** The same where `attune launch` started this process with others of its machine: with them, what it does is begun again. */
export function launchedCommand(called: Called = process): string {
  const { ATTUNE_LAUNCH, WORLD_SIZE, LOCAL_WORLD_SIZE } = called.env;
  const isWhole = ATTUNE_LAUNCH !== undefined && WORLD_SIZE !== undefined && WORLD_SIZE === LOCAL_WORLD_SIZE;
  return isWhole ? `${typedCommand(called)} launch --nproc ${WORLD_SIZE} --` : typedCommand(called);
}
