/**
 * Checks a JSON Schema before anything is built from it. Keywords that a grammar cannot enforce, and keywords that do
 * not conform to the standard (2020-12), are a UserError that names them and their place. References are followed.
 */
import { UserError } from '../../errors.ts';
import { lookup } from '../../lookup.ts';
import type { SchemaBudget } from './schema-budget.ts';

/** A JSON Schema. */
export type JsonSchema = boolean | { [keyword: string]: unknown };
export type SchemaObject = Exclude<JsonSchema, boolean>;

/** A schema, and where it is. */
export interface Located {
  schema: JsonSchema;
  place: string;
}

/** JSON Schema's types. */
const types = ['object', 'array', 'string', 'number', 'integer', 'boolean', 'null'];

/** Keywords that do not affect validity. */
const notes = ['$schema', '$id', '$comment', 'title', 'description', 'default', 'examples', 'deprecated'];
const understood = new Set([
  ...['type', 'properties', 'required', 'additionalProperties', 'items', 'prefixItems', 'minItems', 'maxItems'],
  ...['minLength', 'maxLength', 'enum', 'const', 'anyOf', 'oneOf', 'allOf', '$ref', '$defs', 'definitions'],
  ...[...notes, 'readOnly', 'writeOnly'],
]);

/** Below a place, as a JSON pointer (RFC 6901). */
export const below = (place: string, ...steps: (string | number)[]): string =>
  [place, ...steps.map((step) => String(step).replaceAll('~', '~0').replaceAll('/', '~1'))].join('/');

/** The subschemas of a keyword whose value is a list of them. */
export const listed = ({ schema, place }: { schema: SchemaObject; place: string }, keyword: string): Located[] =>
  ((schema[keyword] ?? []) as JsonSchema[]).map((each, i) => ({ schema: each, place: below(place, keyword, i) }));

const isObject = (value: unknown): value is SchemaObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** Refuses anything that cannot be enforced, anywhere in the schema. */
export function checkSchema(root: JsonSchema, budget: SchemaBudget): void {
  new Reader(root, budget).read({ schema: root, place: '#' });
}

class Reader {
  readonly #root: JsonSchema;
  readonly #budget: SchemaBudget;
  readonly #seen = new Set<SchemaObject>();
  /** Schemas that the current value is being checked against, and those known to terminate. */
  readonly #open = new Set<SchemaObject>();
  readonly #ending = new Set<SchemaObject>();

  constructor(root: JsonSchema, budget: SchemaBudget) {
    this.#root = root;
    this.#budget = budget;
  }

  read({ schema, place }: Located): void {
    this.#budget.part();
    if (typeof schema === 'boolean') return;
    if (!isObject(schema)) throw new UserError(`The schema at ${place} is not an object.`);
    if (this.#seen.has(schema)) return;
    this.#seen.add(schema);
    const unknown = Object.keys(schema).filter((keyword) => !understood.has(keyword));
    if (unknown.length > 0)
      throw new UserError(
        `The schema at ${place} has "${unknown.join('", "')}", which cannot be promised while decoding. Leave it out and check the answer instead.`,
      );
    this.#checkShapes(schema, place);
    this.#budget.deeper(() => {
      for (const each of subschemas(schema, place)) this.read(each);
      for (const each of this.#alongside({ schema, place })) this.read(each);
    });
    this.#checkEnds({ schema, place });
  }

  #checkShapes(schema: SchemaObject, place: string): void {
    const wrong = (keyword: string, wanted: string) =>
      new UserError(`The schema at ${place} has a wrong "${keyword}": expected ${wanted}.`);
    const given = (keyword: string) => lookup(schema, keyword);
    for (const type of [given('type') ?? []].flat())
      if (!types.includes(type as string))
        throw new UserError(
          `The schema at ${place} has the type ${JSON.stringify(type)}; the types are ${types.join(', ')}.`,
        );
    for (const keyword of ['properties', '$defs', 'definitions'])
      if (given(keyword) !== undefined && !isObject(given(keyword))) throw wrong(keyword, 'an object of schemas');
    for (const keyword of ['anyOf', 'oneOf', 'allOf', 'prefixItems', 'enum']) {
      const list = given(keyword);
      if (list !== undefined && (!Array.isArray(list) || list.length === 0)) throw wrong(keyword, 'a list, not empty');
    }
    const required = given('required') ?? [];
    if (!Array.isArray(required) || required.some((name) => typeof name !== 'string'))
      throw wrong('required', 'a list of names');
    if (given('$ref') !== undefined && typeof given('$ref') !== 'string') throw wrong('$ref', 'text');
    // Below the root it would change what references resolve to.
    if (given('$id') !== undefined && place !== '#') throw wrong('$id', 'none, but at the root');
    for (const [least, most, of] of [
      ['minLength', 'maxLength', 'characters'],
      ['minItems', 'maxItems', 'items'],
    ] as const) {
      for (const keyword of [least, most])
        if (given(keyword) !== undefined && !isCount(given(keyword))) throw wrong(keyword, 'a whole number, 0 or more');
      if (Number(given(least) ?? 0) > Number(given(most) ?? Number.POSITIVE_INFINITY))
        throw new UserError(`The schema at ${place} wants at least ${given(least)} and at most ${given(most)} ${of}.`);
    }
    const properties = (given('properties') ?? {}) as object;
    const missing = (required as string[]).find((name) => !Object.hasOwn(properties, name));
    if (missing !== undefined && given('additionalProperties') === false)
      throw new UserError(
        `The schema at ${place} has "${missing}" in "required", but not in "properties", and "additionalProperties" is false.`,
      );
    for (const value of [Object.hasOwn(schema, 'const') ? [schema.const] : [], given('enum') ?? []].flat()) {
      this.#budget.part();
      this.#budget.characters(writtenValue(value, place).length);
    }
    for (const name of [...Object.keys(properties), ...(required as string[])]) this.#budget.characters(name.length);
  }

  /** The schemas that the same value must or may fit. */
  #alongside(at: { schema: SchemaObject; place: string }): Located[] {
    const referred = at.schema.$ref === undefined ? [] : [target(this.#root, at.schema.$ref as string, at.place)];
    return [...referred, ...['allOf', 'anyOf', 'oneOf'].flatMap((keyword) => listed(at, keyword))];
  }

  /** Refuses schemas that lead back to themselves for the same value: they say nothing about it. */
  #checkEnds({ schema, place }: Located): void {
    if (typeof schema === 'boolean' || this.#ending.has(schema)) return;
    if (this.#open.has(schema))
      throw new UserError(`No response can fit the schema at ${place}: it refers to itself, with nothing in between.`);
    this.#open.add(schema);
    this.#budget.deeper(() => {
      for (const each of this.#alongside({ schema, place })) this.#checkEnds(each);
    });
    this.#open.delete(schema);
    this.#ending.add(schema);
  }
}

const isCount = (value: unknown): boolean => typeof value === 'number' && Number.isInteger(value) && value >= 0;

/** The subschemas of parts of a value. */
function subschemas(schema: SchemaObject, place: string): Located[] {
  const single = ['items', 'additionalProperties'].filter((keyword) => schema[keyword] !== undefined);
  return [
    ...Object.entries((schema.properties ?? {}) as Record<string, JsonSchema>).map(([name, each]) => ({
      schema: each,
      place: below(place, 'properties', name),
    })),
    ...single.map((keyword) => ({ schema: schema[keyword] as JsonSchema, place: below(place, keyword) })),
    ...listed({ schema, place }, 'prefixItems'),
  ];
}

/** A value as JSON text. JSON.parse reads 1e999 as Infinity, which JSON cannot write. */
export function writtenValue(value: unknown, place: string): string {
  return JSON.stringify(value, (_, part: unknown) => {
    if (typeof part === 'number' && !Number.isFinite(part))
      throw new UserError(`The schema at ${place} has a number that is too large.`);
    return part;
  });
}

/** The schema that a reference leads to. */
export function target(root: JsonSchema, path: string, place: string): Located {
  if (path !== '#' && !path.startsWith('#/'))
    throw new UserError(
      `The schema at ${place} refers to "${path}"; only places in the same schema (#/…) can be followed.`,
    );
  let found: unknown = root;
  for (const step of path.split('/').slice(1)) {
    const name = unescaped(step, path, place);
    found = typeof found === 'object' && found !== null ? lookup(found as Record<string, unknown>, name) : undefined;
  }
  if (found === undefined) throw new UserError(`The schema at ${place} refers to "${path}", which is not there.`);
  return { schema: found as JsonSchema, place: path };
}

function unescaped(step: string, path: string, place: string): string {
  try {
    return decodeURIComponent(step).replaceAll('~1', '/').replaceAll('~0', '~');
  } catch {
    throw new UserError(`The schema at ${place} refers to "${path}", which has a broken escape (%).`);
  }
}
