/**
 * Walks over the options of a workflow that hands them on to trainers. The trainers' own walks prove what each does there, so a
 * proof here takes no run: another value changes what a trainer is given, or it is refused. A leaf without a proof fails.
 */
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { mends, refused } from './walk.ts';

export { mends, refused };

export type Tree = Record<string, unknown>;

/** Another value changes what the trainers are given, beside these other options. */
export const reaches = (value: unknown, given: Tree = {}) => ({ kind: 'reaches' as const, value, given });
/** The workflow itself reads it. */
export const seen = (body: (path: string) => unknown) => ({ kind: 'seen' as const, body });

type Proof = ReturnType<typeof reaches | typeof refused | typeof mends | typeof seen>;

export interface HandedOn {
  schema: z.ZodType;
  /** What the trainers are given for these options. */
  derive: (options: Tree) => unknown;
  /** The options that set one leaf, by its path (`training.learningRate`). */
  put: (path: string, value: unknown) => Tree;
  proofs: Readonly<Record<string, Proof | readonly Proof[]>>;
}

export function walkHandedOn(what: string, { schema, derive, put, proofs }: HandedOn): void {
  const derived = (options: Tree) => JSON.stringify(derive(options));
  describe(`${what}: every option reaches a trainer, is read or is refused`, () => {
    it.each(Object.keys(proofs))('%s', async (path) => {
      for (const proof of [proofs[path] as Proof].flat()) {
        if (proof.kind === 'seen') {
          await proof.body(path);
          continue;
        }
        const given = proof.given as Tree;
        const both = merged(given, put(path, proof.value));
        if (proof.kind === 'reaches') expect(derived(both)).not.toBe(derived(given));
        else if (proof.kind === 'refused') expect(() => derived(both)).toThrow(proof.because);
        else {
          expect(() => derived(given)).toThrow();
          derived(both);
        }
      }
    });

    it('has a proof for each of them', () => {
      expect(Object.keys(proofs).sort()).toEqual(leaves(schema).sort());
    });
  });
}

const isTree = (value: unknown): value is Tree => value !== null && typeof value === 'object' && !Array.isArray(value);

export function merged(below: Tree, above: Tree): Tree {
  const result = { ...below };
  for (const [key, value] of Object.entries(above)) {
    const under = result[key];
    result[key] = isTree(under) && isTree(value) ? merged(under, value) : value;
  }
  return result;
}

/** The paths of a schema's leaves. */
function leaves(schema: z.ZodType, path: readonly string[] = []): string[] {
  if (schema instanceof z.ZodObject)
    return Object.entries(schema.shape).flatMap(([key, value]) => leaves(value as z.ZodType, [...path, key]));
  if (schema instanceof z.ZodArray && schema.element instanceof z.ZodObject) return leaves(schema.element, path);
  const { innerType } = schema.def as { innerType?: z.ZodType };
  return innerType === undefined ? [path.join('.')] : leaves(innerType, path);
}
