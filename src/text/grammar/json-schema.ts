/**
 * Turns a JSON Schema into a grammar whose sentences are the valid documents, without white space.
 *
 *     const grammar = schemaGrammar({ type: 'object', properties: { age: { type: 'integer' } }, required: ['age'] });
 *
 * Keywords that a grammar cannot enforce (bounds of numbers, patterns, unique items) are refused by name. Properties
 * come in the order of the schema.
 */
import { UserError } from '../../errors.ts';
import { choice, type GrammarNode, literal, optional, repeat, rule, sequence, set } from './grammar.ts';

/** A JSON Schema. */
export type JsonSchema = boolean | { [keyword: string]: unknown };

const understood = new Set([
  ...['type', 'properties', 'required', 'additionalProperties', 'items', 'prefixItems', 'minItems', 'maxItems'],
  ...['minLength', 'maxLength', 'enum', 'const', 'anyOf', 'oneOf', 'allOf', '$ref', '$defs', 'definitions'],
  // Keywords that do not affect validity.
  ...[
    '$schema',
    '$id',
    '$comment',
    'title',
    'description',
    'default',
    'examples',
    'deprecated',
    'readOnly',
    'writeOnly',
  ],
]);
/** JSON Schema's types. */
const types = ['object', 'array', 'string', 'number', 'integer', 'boolean', 'null'];
/** The length of numbers is bounded; otherwise a model could write digits without end. */
const mostDigits = 15;
const mostExponentDigits = 2;

/** A schema may come from anyone: its parts, with alternatives written out, and the characters of its names and values are bounded. */
const mostParts = 5000;
const mostCharacters = 2 ** 17;

const digit = set([0x30, 0x39]);
const hex = set([0x30, 0x39], [0x41, 0x46], [0x61, 0x66]);
const integer = sequence([
  optional(literal('-')),
  choice([literal('0'), sequence([set([0x31, 0x39]), repeat(digit, 0, mostDigits - 1)])]),
]);
const number = sequence([
  integer,
  optional(sequence([literal('.'), repeat(digit, 1, mostDigits)])),
  optional(
    sequence([
      set([0x45, 0x45], [0x65, 0x65]),
      optional(set([0x2b, 0x2b], [0x2d, 0x2d])),
      repeat(digit, 1, mostExponentDigits),
    ]),
  ),
]);

const continuation = set([0x80, 0xbf]);
/**
 * One character of a string: well-formed UTF-8 (RFC 3629), or an escape. A \u escape never names half a surrogate pair.
 */
const character = choice([
  set([0x20, 0x21], [0x23, 0x5b], [0x5d, 0x7f]),
  sequence([set([0xc2, 0xdf]), continuation]),
  sequence([set([0xe0, 0xe0]), set([0xa0, 0xbf]), continuation]),
  sequence([set([0xe1, 0xec], [0xee, 0xef]), continuation, continuation]),
  sequence([set([0xed, 0xed]), set([0x80, 0x9f]), continuation]),
  sequence([set([0xf0, 0xf0]), set([0x90, 0xbf]), continuation, continuation]),
  sequence([set([0xf1, 0xf3]), continuation, continuation, continuation]),
  sequence([set([0xf4, 0xf4]), set([0x80, 0x8f]), continuation, continuation]),
  sequence([
    literal('\\'),
    choice([
      set(...[...'"\\/bfnrt'].map((letter) => [letter.charCodeAt(0), letter.charCodeAt(0)] as const)),
      sequence([
        literal('u'),
        choice([
          sequence([set([0x30, 0x39], [0x41, 0x43], [0x45, 0x46], [0x61, 0x63], [0x65, 0x66]), hex, hex, hex]),
          sequence([set([0x44, 0x44], [0x64, 0x64]), set([0x30, 0x37]), hex, hex]),
        ]),
      ]),
    ]),
  ]),
]);
const text = (least: number, most: number) => sequence([literal('"'), repeat(character, least, most), literal('"')]);

/** Any JSON value, nested to any depth. */
const anyValue: GrammarNode = rule(() => value);
const anyObject: GrammarNode = sequence([
  literal('{'),
  optional(
    sequence([
      pair(text(0, Infinity), anyValue),
      repeat(sequence([literal(','), pair(text(0, Infinity), anyValue)]), 0, Infinity),
    ]),
  ),
  literal('}'),
]);
const value: GrammarNode = choice([
  anyObject,
  sequence([literal('['), optional(listOf(anyValue, 1, Number.POSITIVE_INFINITY)), literal(']')]),
  text(0, Number.POSITIVE_INFINITY),
  number,
  literal('true'),
  literal('false'),
  literal('null'),
]);

/** Any JSON object: what `response_format: { type: 'json_object' }` asks for. */
export const objectGrammar: GrammarNode = anyObject;

/** The grammar of a schema's valid documents. A keyword that it cannot enforce is a UserError that names its place. */
export function schemaGrammar(schema: JsonSchema): GrammarNode {
  return new Compiler(schema).compile(schema, '#');
}

function pair(name: GrammarNode, content: GrammarNode): GrammarNode {
  return sequence([name, literal(':'), content]);
}

function listOf(item: GrammarNode, least: number, most: number): GrammarNode {
  return sequence([item, repeat(sequence([literal(','), item]), least - 1, most - 1)]);
}

class Compiler {
  readonly #root: JsonSchema;
  readonly #rules = new Map<string, GrammarNode>();
  #parts = 0;
  #characters = 0;

  constructor(root: JsonSchema) {
    this.#root = root;
  }

  /** A value or a name as it is written. */
  #exactly(value: unknown): GrammarNode {
    const written = JSON.stringify(value);
    this.#parts++;
    this.#characters += written.length;
    this.#checkSize();
    return literal(written);
  }

  #checkSize(): void {
    if (this.#parts > mostParts)
      throw new UserError(`The schema has more than ${mostParts} parts, counting those of each alternative.`);
    if (this.#characters > mostCharacters)
      throw new UserError(`The names and values of the schema have more than ${mostCharacters} characters.`);
  }

  compile(schema: JsonSchema, place: string): GrammarNode {
    this.#parts++;
    this.#checkSize();
    if (schema === true) return anyValue;
    if (schema === false) throw new UserError(`The schema at ${place} is false: nothing is valid there.`);
    if (typeof schema !== 'object' || schema === null || Array.isArray(schema))
      throw new UserError(`The schema at ${place} is not an object.`);
    const unknown = Object.keys(schema).filter((keyword) => !understood.has(keyword));
    if (unknown.length > 0)
      throw new UserError(
        `The schema at ${place} has "${unknown.join('", "')}", which cannot be promised while decoding. Leave it out and check the answer instead.`,
      );
    if (schema.$ref !== undefined) return this.#reference(String(schema.$ref), place);
    if (schema.const !== undefined) return this.#exactly(schema.const);
    if (schema.enum !== undefined)
      return choice(this.#list(schema.enum, `${place}/enum`).map((each) => this.#exactly(each)));
    const alternatives = schema.anyOf ?? schema.oneOf;
    if (alternatives !== undefined) {
      const { anyOf: _, oneOf: __, ...rest } = schema;
      return choice(
        this.#list(alternatives, `${place}/anyOf`).map((each, i) =>
          this.compile(this.#merged(rest, each as JsonSchema), `${place}/anyOf/${i}`),
        ),
      );
    }
    if (schema.allOf !== undefined) {
      const { allOf, ...rest } = schema;
      const whole = this.#list(allOf, `${place}/allOf`).reduce<JsonSchema>(
        (sum, each) => this.#merged(sum, this.#resolved(each as JsonSchema, place)),
        rest,
      );
      return this.compile(whole, place);
    }
    const wanted = schema.type === undefined ? this.#impliedTypes(schema) : [schema.type].flat().map(String);
    if (wanted === undefined) return anyValue;
    return choice(wanted.map((type) => this.#ofType(type, schema, place)));
  }

  #ofType(type: string, schema: { [keyword: string]: unknown }, place: string): GrammarNode {
    if (type === 'object') return this.#object(schema, place);
    if (type === 'array') return this.#array(schema, place);
    if (type === 'string') return text(count(schema.minLength, 0), count(schema.maxLength, Number.POSITIVE_INFINITY));
    if (type === 'integer') return integer;
    if (type === 'number') return number;
    if (type === 'boolean') return choice([literal('true'), literal('false')]);
    if (type === 'null') return literal('null');
    throw new UserError(`The schema at ${place} has the type "${type}"; the types are ${types.join(', ')}.`);
  }

  /** Properties in order: each that is not required may be left out. Others only where the schema describes them. */
  #object(schema: { [keyword: string]: unknown }, place: string): GrammarNode {
    const properties = Object.entries((schema.properties ?? {}) as Record<string, JsonSchema>);
    const required = new Set((schema.required ?? []) as string[]);
    for (const name of required) if (!properties.some(([known]) => known === name)) properties.push([name, true]);
    const extra = schema.additionalProperties;
    if (properties.length === 0) {
      if (extra === false) return literal('{}');
      if (extra === undefined || extra === true) return anyObject;
      const member = pair(
        text(0, Number.POSITIVE_INFINITY),
        this.compile(extra as JsonSchema, `${place}/additionalProperties`),
      );
      return sequence([literal('{'), optional(listOf(member, 1, Number.POSITIVE_INFINITY)), literal('}')]);
    }
    const members = properties.map(([name, each]) => ({
      node: pair(this.#exactly(name), this.compile(each, `${place}/properties/${name}`)),
      required: required.has(name),
    }));
    return sequence([literal('{'), inOrder(members), literal('}')]);
  }

  #array(schema: { [keyword: string]: unknown }, place: string): GrammarNode {
    const least = count(schema.minItems, 0);
    const most = count(schema.maxItems, Number.POSITIVE_INFINITY);
    if (most < least) throw new UserError(`The schema at ${place} wants at least ${least} and at most ${most} items.`);
    const first = this.#list(schema.prefixItems ?? [], `${place}/prefixItems`).map((each, i) =>
      this.compile(each as JsonSchema, `${place}/prefixItems/${i}`),
    );
    const rest =
      schema.items === false ? undefined : this.compile((schema.items ?? true) as JsonSchema, `${place}/items`);
    const parts: GrammarNode[] = [];
    const open = (i: number): GrammarNode => {
      // The list from item i on, its comma included.
      const item = first[i] ?? rest;
      if (item === undefined || i >= most) return sequence([]);
      if (i >= first.length) {
        const comma = i === 0 ? item : sequence([literal(','), item]);
        const further = repeat(sequence([literal(','), item]), Math.max(0, least - i - 1), most - i - 1);
        const some = sequence([comma, further]);
        return least > i ? some : optional(some);
      }
      const here = sequence([...(i === 0 ? [] : [literal(',')]), item, open(i + 1)]);
      return least > i ? here : optional(here);
    };
    parts.push(literal('['), open(0), literal(']'));
    return sequence(parts);
  }

  #reference(path: string, place: string): GrammarNode {
    const known = this.#rules.get(path);
    if (known !== undefined) return known;
    const target = this.#target(path, place);
    let compiled: GrammarNode | undefined;
    const made = rule(() => {
      compiled ??= this.compile(target, path);
      return compiled;
    });
    this.#rules.set(path, made);
    // Resolved now, so that a fault shows at once and not when a response gets there.
    compiled = this.compile(target, path);
    return made;
  }

  #target(path: string, place: string): JsonSchema {
    if (path !== '#' && !path.startsWith('#/'))
      throw new UserError(
        `The schema at ${place} refers to "${path}"; only places in the same schema (#/…) can be followed.`,
      );
    let found: unknown = this.#root;
    for (const step of path.split('/').slice(1))
      found = (found as Record<string, unknown> | undefined)?.[
        decodeURIComponent(step).replaceAll('~1', '/').replaceAll('~0', '~')
      ];
    if (found === undefined) throw new UserError(`The schema at ${place} refers to "${path}", which is not there.`);
    return found as JsonSchema;
  }

  #resolved(schema: JsonSchema, place: string): JsonSchema {
    return typeof schema === 'object' && schema.$ref !== undefined ? this.#target(String(schema.$ref), place) : schema;
  }

  #merged(base: JsonSchema, more: JsonSchema): JsonSchema {
    if (typeof base !== 'object' || typeof more !== 'object')
      return typeof base === 'object' && more === true ? base : more;
    const properties = { ...(base.properties as object | undefined), ...(more.properties as object | undefined) };
    const required = [...((base.required ?? []) as string[]), ...((more.required ?? []) as string[])];
    return {
      ...base,
      ...more,
      ...(Object.keys(properties).length > 0 ? { properties } : {}),
      ...(required.length > 0 ? { required: [...new Set(required)] } : {}),
    };
  }

  /** By the standard a keyword of one type allows all other types where `type` is missing; here it means that type. */
  #impliedTypes(schema: { [keyword: string]: unknown }): string[] | undefined {
    if (['properties', 'required', 'additionalProperties'].some((keyword) => keyword in schema)) return ['object'];
    if (['items', 'prefixItems', 'minItems', 'maxItems'].some((keyword) => keyword in schema)) return ['array'];
    if (['minLength', 'maxLength'].some((keyword) => keyword in schema)) return ['string'];
    return undefined;
  }

  #list(value: unknown, place: string): unknown[] {
    if (!Array.isArray(value)) throw new UserError(`The schema has no list at ${place}.`);
    return value;
  }
}

/** The members of an object in order, those left out that are not required. */
function inOrder(members: readonly { node: GrammarNode; required: boolean }[]): GrammarNode {
  // What follows from a member on: where none is written yet, and where a comma comes before the next. From the last member
  // to the first, so that both exist once: written out anew for each choice, their number would double with every member.
  let [first, later] = [sequence([]), sequence([])];
  for (const { node, required } of members.toReversed()) {
    const [begin, goOn] = [sequence([node, later]), sequence([literal(','), node, later])];
    first = required ? begin : choice([begin, first]);
    later = required ? goOn : choice([goOn, later]);
  }
  return first;
}

function count(value: unknown, otherwise: number): number {
  if (value === undefined) return otherwise;
  if (typeof value !== 'number' || !Number.isInteger(value) || value < 0)
    throw new UserError(`${JSON.stringify(value)} is not a length or a number of items.`);
  return value;
}
