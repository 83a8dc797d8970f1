/** Walks the options of a command, which runs in this process: what it prints or writes changes, or the option is refused. */
import { createHash } from 'node:crypto';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { type ConfigSchema, kebabCase } from '../../src/runs/index.ts';
import { attune } from '../support/command-line.ts';
import { isTree, type Options, type Proofs, walkOptions } from './walk.ts';

export { fails, mends, refused } from './walk.ts';

interface Seen {
  /** What was printed and written. */
  output: string;
}

/** The output with the option differs from that without it. */
export const changes = (value: unknown, given: Options | (() => Options) = {}) => ({
  kind: 'changes' as const,
  ...{ what: 'output' as const, value, given },
});

export interface WalkedCommand<S extends ConfigSchema> {
  base: () => Options;
  /** The option that names the file or folder of results, if there is one. */
  output?: keyof S['shape'] & string;
  /** Results are a file whose name ends so. */
  ending?: string;
  /** What counts of a written file: not the options that it repeats. All of it unless given. */
  counted?: (name: string, text: string) => string;
  proofs: Proofs<S, Seen>;
}

export function walkCommand<S extends ConfigSchema>(
  words: readonly string[],
  schema: S,
  { base, output, ending = '', counted = (_, text) => text, proofs }: WalkedCommand<S>,
): void {
  const folder = mkdtempSync(join(tmpdir(), 'attune-command-options-'));
  afterAll(() => rmSync(folder, { recursive: true }));
  let outputs = 0;

  const run = async (options: Options): Promise<Seen> => {
    // in a folder of its own: some commands look at what is beside
    const own = mkdtempSync(join(folder, `run-${outputs++}-`));
    const results = join(own, `results${ending}`);
    const place = output === undefined || output in options ? {} : { [output]: results };
    const trees = Object.entries(options).filter(([, value]) => isTree(value));
    const file = join(folder, `options-${outputs}.json`);
    if (trees.length > 0) writeFileSync(file, JSON.stringify(Object.fromEntries(trees)));
    const config = trees.length > 0 ? ['--config', file] : [];
    const { code, out, err } = await attune(...words, ...flags({ ...place, ...options }), ...config);
    if (code === 0) return { output: `${steady(out.replaceAll(own, ''))}${written(results, counted)}` };
    expect(err, 'a failure is told in words').not.toMatch(/\n\s+at /);
    throw new Error(err);
  };
  it(`${words.join(' ')} gives the same output twice`, async () => {
    expect(await run(base())).toEqual(await run(base()));
  });
  walkOptions<S, Seen>(words.join(' '), schema, { base, run, proofs });
}

function flags(options: Options): string[] {
  return Object.entries(options).flatMap(([name, value]) => {
    const flag = `--${kebabCase(name)}`;
    if (value === undefined || isTree(value)) return [];
    if (typeof value === 'boolean') return [value ? flag : `--no-${flag.slice(2)}`];
    return [flag, ...(Array.isArray(value) ? value.map(String) : [String(value)])];
  });
}

/** What was printed, without speeds and times. */
const steady = (text: string) =>
  text.replace(/"\w*(seconds|per_second|speedup)\w*": [\d.e+-]+|\d+(\.\d+)? ?m?s\b|^.*\/s\b.*$/gm, '');

/** A hash of a file, or of the files of a folder that are not pictures. */
function written(path: string, counted: (name: string, text: string) => string): string {
  if (!existsSync(path)) return '';
  const hash = createHash('sha256');
  const names = statSync(path).isFile() ? [''] : readdirSync(path).sort();
  for (const name of names.filter((each) => !each.endsWith('.png'))) {
    const bytes = readFileSync(join(path, name));
    const isText = /\.(json|jsonl|txt|html)$/.test(name);
    hash.update(name).update(isText ? steady(counted(name, bytes.toString())) : bytes);
  }
  return hash.digest('hex');
}
