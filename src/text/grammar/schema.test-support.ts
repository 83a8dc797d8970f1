/**
 * For tests of JSON Schema grammars: random schemas over the supported keywords, random sentences of a grammar, and a
 * validator that follows the standard (2020-12) literally.
 */
import type { Random } from '../../random.ts';
import { type GrammarNode, matcher } from './grammar.ts';
import type { JsonSchema } from './json-schema.ts';

type Schema = Exclude<JsonSchema, boolean>;

const equal = (a: unknown, b: unknown): boolean => {
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null) return a === b;
  if (Array.isArray(a) !== Array.isArray(b)) return false;
  const [x, y] = [a as Record<string, unknown>, b as Record<string, unknown>];
  return (
    Object.keys(x).length === Object.keys(y).length &&
    Object.keys(x).every((name) => Object.hasOwn(y, name) && equal(x[name], y[name]))
  );
};

/** Whether a value fits a schema. */
export function isValid(value: unknown, schema: JsonSchema, root: JsonSchema = schema): boolean {
  if (typeof schema === 'boolean') return schema;
  const fits = (each: unknown, part: unknown = value) => isValid(part, each as JsonSchema, root);
  const has = (keyword: string) => Object.hasOwn(schema, keyword);
  const list = (keyword: string) => (schema[keyword] ?? []) as unknown[];
  if (has('$ref')) {
    const steps = String(schema.$ref).split('/').slice(1);
    if (!fits(steps.reduce<unknown>((at, step) => (at as Record<string, unknown>)[step], root))) return false;
  }
  if (!list('allOf').every((each) => fits(each))) return false;
  if (has('anyOf') && !list('anyOf').some((each) => fits(each))) return false;
  if (has('oneOf') && list('oneOf').filter((each) => fits(each)).length !== 1) return false;
  if (has('const') && !equal(value, schema.const)) return false;
  if (has('enum') && !list('enum').some((each) => equal(value, each))) return false;
  const type = Array.isArray(value) ? 'array' : value === null ? 'null' : typeof value;
  const types = [schema.type].flat();
  if (has('type') && !types.includes(type) && !(types.includes('integer') && Number.isInteger(value))) return false;
  if (typeof value === 'string') {
    const length = [...value].length;
    if (length < Number(schema.minLength ?? 0) || length > Number(schema.maxLength ?? Infinity)) return false;
  }
  if (Array.isArray(value)) {
    const first = list('prefixItems');
    if (value.length < Number(schema.minItems ?? 0) || value.length > Number(schema.maxItems ?? Infinity)) return false;
    return value.every((item, i) => fits(i < first.length ? first[i] : (schema.items ?? true), item));
  }
  if (type !== 'object') return true;
  const object = value as Record<string, unknown>;
  const properties = (schema.properties ?? {}) as Record<string, JsonSchema>;
  if (list('required').some((name) => !Object.hasOwn(object, String(name)))) return false;
  return Object.entries(object).every(([name, each]) =>
    fits(Object.hasOwn(properties, name) ? properties[name] : (schema.additionalProperties ?? true), each),
  );
}

const names = ['a', 'b', 'c"', 'ö'];
const values: readonly unknown[] = ['', 'x', 'xyz', 0, 1, -1.5, null, true, [], [1], {}, { a: 1 }, { a: 'x', b: null }];

/** A schema of randomly combined keywords: some are contradictory and some cannot be enforced. */
export function randomSchema(random: Random, depth: number): JsonSchema {
  if (random.chance(0.04)) return random.chance(0.6);
  const schema: Schema = {};
  const inner = () => randomSchema(random, depth - 1);
  const several = (least = 1) => Array.from({ length: random.int(least, 3) }, inner);
  const type = random.pick(['string', 'integer', 'number', 'boolean', 'null', 'object', 'array', 'any']);
  if (random.chance(0.25)) schema.type = random.sample(['string', 'integer', 'null', 'object', 'array'], 2);
  else if (type !== 'any' && random.chance(0.8)) schema.type = type;
  if (type === 'string' || random.chance(0.05)) {
    if (random.chance(0.4)) schema.minLength = random.int(0, 3);
    if (random.chance(0.4)) schema.maxLength = Number(schema.minLength ?? 0) + random.int(0, 3);
  }
  if (type === 'array' || random.chance(0.05)) {
    if (random.chance(0.4)) schema.minItems = random.int(0, 2);
    if (random.chance(0.4)) schema.maxItems = Number(schema.minItems ?? 0) + random.int(0, 2);
    if (depth > 0 && random.chance(0.4)) schema.prefixItems = several();
    if (depth > 0 && random.chance(0.6)) schema.items = inner();
  }
  if (type === 'object' || random.chance(0.05)) {
    if (depth > 0)
      schema.properties = Object.fromEntries(random.sample(names, random.int(0, 3)).map((name) => [name, inner()]));
    if (random.chance(0.5)) schema.required = random.sample(names, random.int(0, 2));
    if (depth > 0 && random.chance(0.4)) schema.additionalProperties = random.chance(0.4) ? false : inner();
  }
  if (random.chance(0.12)) schema.enum = random.sample([...values], random.int(1, 6));
  if (random.chance(0.05)) schema.const = random.pick([...values]);
  if (random.chance(0.12)) schema.$ref = `#/$defs/${random.pick(['one', 'two'])}`;
  if (depth > 0) {
    if (random.chance(0.12)) schema.allOf = several();
    if (random.chance(0.15)) schema.anyOf = several();
    if (random.chance(0.15)) schema.oneOf = several();
  }
  return schema;
}

/** A random sentence, byte by byte; undefined if none ends soon. Bytes that close something are preferred. */
export function randomSentence(grammar: GrammarNode, random: Random): string | undefined {
  const bytes: number[] = [];
  const usual = [...'"]},:0123456789aex\\{[tfn.-'].map((letter) => letter.charCodeAt(0));
  const all = Array.from({ length: 256 }, (_, byte) => byte);
  let state = matcher(grammar);
  while (bytes.length < 400) {
    if (state.ended || (state.accepting && random.chance(0.7))) return Buffer.from(bytes).toString();
    const among = (some: readonly number[]) => some.filter((byte) => state.next(byte) !== undefined);
    const closing = random.chance(0.5) ? among([0x22, 0x5d, 0x7d]) : [];
    const likely = closing.length > 0 ? closing : among(usual);
    const allowed = likely.length > 0 && random.chance(0.95) ? likely : among(all);
    if (allowed.length === 0) throw new Error(`nothing goes on from ${Buffer.from(bytes).toString()}`);
    const byte = random.pick(allowed);
    bytes.push(byte);
    state = state.next(byte) as typeof state;
  }
  return undefined;
}
