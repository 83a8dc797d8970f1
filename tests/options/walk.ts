/**
 * Proves of every option that it does something, or that it is refused by name where it would do nothing. Trainers are walked in
 * short real runs (trainer-walk.ts), commands as they are typed (command-walk.ts).
 *
 * Each proof is about one option. A field of the schema without a proof fails, and so does a rule (withRules) that no proof makes
 * speak; so neither can be added without one.
 */
import { describe, expect, it } from 'vitest';
import type { z } from 'zod';
import { unreadRules } from '../../src/runs/config/unread.ts';
import { type ConfigSchema, kebabCase, resolveConfig, snakeCase } from '../../src/runs/index.ts';

export type Options = Record<string, unknown>;
/** Functions are called when the tests run. */
type Given = Options | (() => Options);

/** A run with these options besides the base; what can be seen of it. It rejects where the run fails. */
export type Run<Outcome = unknown> = (options: Options) => Promise<Outcome>;

export type Proof<Outcome = never> =
  | { kind: 'changes'; what: keyof Outcome; value: unknown; given: Given }
  | { kind: 'refused' | 'fails'; because: RegExp; value: unknown; given: Given }
  | { kind: 'mends'; value: unknown; given: Given }
  | { kind: 'seen'; body: (run: Run<Outcome>) => unknown };

/** The option is refused by its name. */
export const refused = (value: unknown, because: RegExp, given: Given = {}) => ({
  kind: 'refused' as const,
  ...{ value, because, given },
});
/** With the option the run fails, in words that show that it was read; without it, it does not. */
export const fails = (value: unknown, because: RegExp, given: Given = {}) => ({
  kind: 'fails' as const,
  ...{ value, because, given },
});
/** Without the option the run fails, with it it does not. */
export const mends = (value: unknown, given: Given) => ({ kind: 'mends' as const, value, given });

/** One proof or several for each field. */
export type Proofs<S extends ConfigSchema, Outcome> = {
  [Name in keyof z.output<S>]-?: Proof<Outcome> | readonly Proof<Outcome>[];
};

export interface Walked<S extends ConfigSchema, Outcome> {
  /** The options of a short run, to which each proof adds. */
  base: () => Options;
  run: Run<Outcome>;
  proofs: Proofs<S, Outcome>;
}

const evaluated = (value: unknown): unknown => (typeof value === 'function' ? (value as () => unknown)() : value);

export function walkOptions<S extends ConfigSchema, Outcome>(command: string, schema: S, walked: Walked<S, Outcome>) {
  const known = new Map<string, Promise<Outcome>>();
  const spoken = new Set<string>();

  /** The outcome of the base and these options; computed once for the same options. */
  const outcome: Run<Outcome> = (given) => {
    const options = { ...walked.base(), ...given };
    const key = JSON.stringify(options, (_, value) => (value === undefined ? 'unset' : value));
    const found = known.get(key) ?? walked.run(options);
    known.set(key, found);
    return found;
  };

  const prove = async (name: string, proof: Proof<Outcome>): Promise<void> => {
    if (proof.kind === 'seen') return void (await proof.body(outcome));
    const given = evaluated(proof.given) as Options;
    const own = { ...given, [name]: evaluated(proof.value) };
    if (proof.kind === 'changes') {
      const [without, with_] = [await outcome(given), await outcome(own)];
      expect(with_[proof.what]).not.toEqual(without[proof.what]);
    } else if (proof.kind === 'mends') {
      await expect(outcome(given)).rejects.toThrow();
      await outcome(own);
    } else {
      const failure = await outcome(own).then(
        () => undefined,
        (error: Error) => error,
      );
      expect(failure?.message).toMatch(proof.because);
      if (proof.kind === 'fails') return void (await outcome(given));
      expect(failure?.message).toContain(isTree(own[name]) ? `${snakeCase(name)}:` : `--${kebabCase(name)}`);
      for (const rule of rulesAgainst(schema, { ...walked.base(), ...own }, name)) spoken.add(rule);
    }
  };

  describe(`${command}: every option does something or is refused`, () => {
    for (const [name, proofs] of Object.entries(walked.proofs) as [string, Proof<Outcome> | Proof<Outcome>[]][])
      it(`--${kebabCase(name)}`, async () => {
        for (const proof of [proofs].flat()) await prove(name, proof);
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

/** What only a file can hold. */
export const isTree = (value: unknown) => typeof value === 'object' && value !== null && !Array.isArray(value);

/** The rules that hold against an option in such a run. */
function rulesAgainst(schema: ConfigSchema, options: Options, name: string): string[] {
  const texts = Object.entries(options).filter(([each, value]) => each === name || !isTree(value));
  const { config } = resolveConfig(schema, { flags: Object.fromEntries(texts) });
  return unreadRules(schema).flatMap((rule, i) =>
    (rule.options as readonly string[]).includes(name) && rule.unread(config as never) ? [`${i} ${name}`] : [],
  );
}
