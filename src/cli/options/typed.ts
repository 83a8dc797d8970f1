/** How the person at the keyboard called attune, so that advice names a command that can be typed as it stands. */
import { relative, resolve } from 'node:path';

/** The part of `process` that is used, so that a test can stand in for it. */
export interface Called {
  argv: readonly string[];
  env: NodeJS.ProcessEnv;
  cwd(): string;
}

export function typedCommand({ argv, env, cwd }: Called = process): string {
  // The launcher of the bundle says what it is.
  if (env.ATTUNE_TYPED) return env.ATTUNE_TYPED;
  if (env.npm_command === 'run-script' || env.npm_command === 'run') return 'npm run attune --';
  if (env.npm_command === 'exec') return 'npx attune';
  const script = argv[1];
  if (script === undefined || !script.endsWith('.mjs')) return 'attune';
  const near = relative(cwd(), resolve(script));
  return `node ${near.startsWith('..') ? script : near}`;
}
