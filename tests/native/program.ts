/** Compiles a program of this folder as the addon's source `like` is compiled. */
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
// @ts-expect-error plain JavaScript that runs before any types are installed
import { ensureAddon, packageRoot } from '../../scripts/native.mjs';

export async function compiled(name: string, like: string, folder: string): Promise<string> {
  const { path, lib } = await ensureAddon();
  const commands = join(path, '..', 'compile_commands.json');
  const sources = JSON.parse(readFileSync(commands, 'utf8')) as { file: string; arguments: string[] }[];
  const [compiler = '', ...flags] = sources.find(({ file }) => file.endsWith(like))?.arguments.slice(0, -2) ?? [];
  const program = join(folder, name);
  const libraries = [`-Wl,-rpath,${lib}`, `-L${lib}`, '-Wl,--allow-shlib-undefined', '-lc10', '-ltorch_cpu'];
  const source = join(packageRoot, 'tests/native', `${name}.cc`);
  await promisify(execFile)(compiler, [...flags, '-O1', source, '-o', program, ...libraries]);
  return program;
}
