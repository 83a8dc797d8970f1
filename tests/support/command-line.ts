/**
 * A command line as a user calls it, in this process: what it printed, and the code it would have exited with.
 *
 *     const { code, out, err } = await attune('rollouts', folder, '--best', '3');
 */
import { vi } from 'vitest';
import { main } from '../../src/cli/main.ts';

export async function attune(...args: string[]): Promise<{ code: number; out: string; err: string }> {
  const told = { out: '', err: '' };
  const gather = (to: keyof typeof told, end: string) => (text: unknown) => {
    told[to] += `${text}${end}`;
    return true;
  };
  const spies = [
    vi.spyOn(console, 'log').mockImplementation(gather('out', '\n')),
    vi.spyOn(console, 'error').mockImplementation(gather('err', '\n')),
    vi.spyOn(process.stderr, 'write').mockImplementation(gather('err', '')),
    vi.spyOn(process.stdout, 'write').mockImplementation(gather('out', '')),
  ];
  try {
    const code = await main(args, { version: '0', prepareEngine: async () => ({}) as never });
    return { code, ...told };
  } finally {
    for (const spy of spies) spy.mockRestore();
    process.exitCode = undefined;
  }
}
