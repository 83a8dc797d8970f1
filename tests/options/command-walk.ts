/**
 * Proves of every option of a command that it changes what the command prints or writes, or that it is refused by name. The command
 * runs in this process. A field without a proof fails, and so does a rule (withRules) that no proof makes speak.
 */
import { createHash } from 'node:crypto';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import type { z } from 'zod';
import { unreadRules } from '../../src/runs/config/unread.ts';
import { type ConfigSchema, kebabCase, resolveConfig } from '../../src/runs/index.ts';
import { attune } from '../support/command-line.ts';
import type { Options } from './walk.ts';

type Given = Options | (() => Options);

/** The output with the option differs from that without it. */
export const changes = (value: unknown, given: Given = {}) => ({ kind: 'changes' as const, value, given });
/** The option is refused by its name. */
export const refused = (value: unknown, because: RegExp, given: Given = {}) => ({
  kind: 'refused' as const,
  ...{ value, because, given },
});
/** With the option the command fails, in words that show that it was read; without it, it does not. */
export const fails = (value: unknown, because: RegExp, given: Given = {}) => ({
  kind: 'fails' as const,
  ...{ value, because, given },
});
/** Without the option the command fails, with it it does not. */
export const mends = (value: unknown, given: Given) => ({ kind: 'mends' as const, value, given });

type Proof = ReturnType<typeof changes | typeof refused | typeof fails | typeof mends>;

export interface WalkedCommand<S extends ConfigSchema> {
  base: () => Options;
  /** The option that names the folder of results, if there is one. */
  output?: string;
  proofs: { [Name in keyof z.output<S>]-?: Proof | readonly Proof[] };
}

export function walkCommand<S extends ConfigSchema>(
  words: readonly string[],
  schema: S,
  walked: WalkedCommand<S>,
): void {
  const folder = mkdtempSync(join(tmpdir(), 'attune-command-options-'));
  afterAll(() => rmSync(folder, { recursive: true }));
  const known = new Map<string, Promise<{ code: number; shown: string; err: string }>>();
  const spoken = new Set<string>();
  let outputs = 0;

  const run = (options: Options) => {
    const key = JSON.stringify(options, (_, value) => (value === undefined ? 'unset' : value));
    const found = known.get(key) ?? observe(options);
    known.set(key, found);
    return found;
  };
  const observe = async (options: Options) => {
    const results = join(folder, `results-${outputs++}`);
    const place = walked.output === undefined ? {} : { [walked.output]: results };
    const { code, out, err } = await attune(...words, ...flags({ ...walked.base(), ...place, ...options }));
    return { code, shown: `${steady(out)}${written(results)}`, err };
  };
  const evaluated = <T>(value: T | (() => T)): T => (typeof value === 'function' ? (value as () => T)() : value);

  const prove = async (name: string, proof: Proof): Promise<void> => {
    const given = evaluated(proof.given);
    const own = { ...given, [name]: evaluated(proof.value) };
    const with_ = await run(own);
    if (proof.kind === 'refused') {
      expect(with_.code, with_.err).toBe(2);
      expect(with_.err).toMatch(proof.because);
      expect(with_.err).toContain(`--${kebabCase(name)}`);
      noteRules(schema, { ...walked.base(), ...own }, name, spoken);
      return;
    }
    const without = await run(given);
    if (proof.kind === 'fails') {
      expect([without.code, with_.code], without.err).toEqual([0, 2]);
      expect(with_.err).toMatch(proof.because);
      return;
    }
    expect(with_.code, with_.err).toBe(0);
    if (proof.kind === 'mends') expect(without.code).not.toBe(0);
    else {
      expect(without.code, without.err).toBe(0);
      expect(with_.shown).not.toBe(without.shown);
    }
  };

  describe(`${words.join(' ')}: every option does something or is refused`, () => {
    for (const [name, proofs] of Object.entries(walked.proofs) as [string, Proof | readonly Proof[]][])
      it(`--${kebabCase(name)}`, async () => {
        for (const proof of [proofs].flat() as Proof[]) await prove(name, proof);
      });

    it('has a proof for each field of the schema', () => {
      expect(Object.keys(walked.proofs).sort()).toEqual(Object.keys(schema.shape).sort());
    });

    it('has made every rule speak, for each of its options', () => {
      const rules = unreadRules(schema).flatMap(({ options }, i) => options.map((option) => `${i} ${option}`));
      expect(rules.filter((rule) => !spoken.has(rule))).toEqual([]);
    });
  });
}

/** Writes down the rules that hold against an option there. */
function noteRules(schema: ConfigSchema, options: Options, name: string, spoken: Set<string>): void {
  const { config } = resolveConfig(schema, { flags: options });
  for (const [i, rule] of unreadRules(schema).entries())
    if ((rule.options as readonly string[]).includes(name) && rule.unread(config as never)) spoken.add(`${i} ${name}`);
}

function flags(options: Options): string[] {
  return Object.entries(options).flatMap(([name, value]) => {
    const flag = `--${kebabCase(name)}`;
    if (value === undefined) return [];
    if (typeof value === 'boolean') return [value ? flag : `--no-${flag.slice(2)}`];
    return [flag, ...(Array.isArray(value) ? value.map(String) : [String(value)])];
  });
}

/** What was printed, without speeds and times. */
const steady = (text: string) => text.replace(/"tokens_per_second": [\d.e+-]+|\d+(\.\d+)? ?m?s\b|[\d.]+\/s/g, '');

function written(folder: string): string {
  if (!existsSync(folder)) return '';
  const hash = createHash('sha256');
  for (const name of readdirSync(folder).sort())
    if (name.endsWith('.json')) hash.update(name).update(steady(readFileSync(join(folder, name), 'utf8')));
  return hash.digest('hex');
}
