/** Starts the ranks of a world as processes of Node, one thread each, and gives what each printed. */
import { spawn } from 'node:child_process';
import { freePort } from '../../src/dist/meeting.ts';

export async function spawnRanks(
  size: number,
  args: readonly string[],
  more: Record<string, string> = {},
): Promise<string[]> {
  const port = String(await freePort());
  return Promise.all(
    Array.from({ length: size }, (_, rank) => {
      const place = { RANK: `${rank}`, WORLD_SIZE: `${size}`, LOCAL_RANK: `${rank}`, LOCAL_WORLD_SIZE: `${size}` };
      const meeting = { MASTER_ADDR: '127.0.0.1', MASTER_PORT: port, TORCHELASTIC_RUN_ID: port, ATTUNE_THREADS: '1' };
      // A machine with too much to do must not make a rank look hung.
      return output(args, { ...process.env, ...place, ...meeting, ATTUNE_DIST_HANG: '0', ...more });
    }),
  );
}

function output(args: readonly string[], env: NodeJS.ProcessEnv): Promise<string> {
  return new Promise((resolve, reject) => {
    const flags = args[0] === '-e' ? ['--input-type=module-typescript'] : [];
    const child = spawn(process.execPath, [...flags, ...args], {
      env,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let text = '';
    let errors = '';
    child.stdout.setEncoding('utf8').on('data', (chunk) => {
      text += chunk;
    });
    child.stderr.setEncoding('utf8').on('data', (chunk) => {
      errors += chunk;
    });
    child.on('error', reject);
    child.on('close', (code) => {
      if (code === 0) resolve(text);
      else reject(new Error(`a rank ended with ${code}: ${errors.slice(-2000)}`));
    });
  });
}
