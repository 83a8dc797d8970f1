/**
 * Writes random documents token by token within a schema's grammar, and checks them by JSON.parse and by an independent
 * validator.
 */
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { UserError } from '../../errors.ts';
import { Random } from '../../random.ts';
import { Tokenizer } from '../tokenizer/tokenizer.ts';
import { Constraint, type Vocabulary, vocabularyOf } from './constraint.ts';
import { type GrammarNode, matcher } from './grammar.ts';
import { type JsonSchema, objectGrammar, schemaGrammar } from './json-schema.ts';
import { isValid } from './schema.test-support.ts';

let tokenizer: Tokenizer;
let vocabulary: Vocabulary;
beforeAll(async () => {
  tokenizer = await Tokenizer.load(join(import.meta.dirname, '../../../models/tiny'));
  vocabulary = vocabularyOf(tokenizer);
});

/** Picks among the allowed tokens, preferring those that close something. */
function write(grammar: GrammarNode, random: Random): string {
  const constraint = new Constraint(vocabulary, grammar);
  const ids: number[] = [];
  for (let turn = 0; turn < 3000; turn++) {
    const allowed = constraint.after(ids);
    const ends = allowed.filter((id) => vocabulary.ends.includes(id));
    if (ends.length > 0 && random.chance(0.6)) return tokenizer.decode(ids);
    const closing = allowed.filter((id) => /^["}\]]/.test(tokenizer.decode([id])));
    const among = closing.length > 0 && random.chance(0.4) ? closing : allowed;
    const id = random.pick(among);
    if (vocabulary.ends.includes(id)) return tokenizer.decode(ids);
    ids.push(id);
  }
  throw new Error('no end in sight');
}

type Schema = Exclude<JsonSchema, boolean>;

function randomSchema(random: Random, depth: number): Schema {
  const kinds = ['string', 'integer', 'number', 'boolean', 'null', 'enum', 'const'];
  const kind = random.pick(depth > 0 ? [...kinds, 'object', 'object', 'array', 'anyOf'] : kinds);
  if (kind === 'enum') return { enum: random.sample(['a', 'b"c', 'ö', 3, null, true, { x: [1] }], random.int(1, 4)) };
  if (kind === 'const') return { const: random.pick(['x\ny', -1.5, false, [], { a: null }] as unknown[]) };
  if (kind === 'anyOf')
    return { anyOf: Array.from({ length: random.int(1, 3) }, () => randomSchema(random, depth - 1)) };
  if (kind === 'array') {
    const minItems = random.int(0, 2);
    const bounds = random.chance(0.5) ? { minItems, maxItems: minItems + random.int(0, 2) } : {};
    return { type: 'array', items: randomSchema(random, depth - 1), ...bounds };
  }
  if (kind === 'object') {
    const names = random.sample(['name', 'age', 'a b', 'quote"', 'naïve', 'tags', 'x'], random.int(0, 4));
    const properties = Object.fromEntries(names.map((name) => [name, randomSchema(random, depth - 1)]));
    const required = names.filter(() => random.chance(0.5));
    return { type: 'object', properties, required, additionalProperties: false };
  }
  if (kind === 'string' && random.chance(0.4)) {
    const minLength = random.int(0, 3);
    return { type: 'string', minLength, maxLength: minLength + random.int(0, 4) };
  }
  return { type: kind };
}

describe('JSON schemas as grammars', () => {
  it('500 generated schemas: everything that is written parses and is valid', () => {
    for (let seed = 0; seed < 500; seed++) {
      const random = new Random('schema', seed);
      const schema = randomSchema(random, 3);
      const text = write(schemaGrammar(schema), random);
      const parsed = JSON.parse(text);
      expect(isValid(parsed, schema, schema), `${JSON.stringify(schema)}\n${text}`).toBe(true);
    }
  });

  it('follows references, also to itself', () => {
    const tree: Schema = {
      $ref: '#/$defs/tree',
      $defs: {
        tree: {
          type: 'object',
          properties: {
            value: { type: 'integer' },
            children: { type: 'array', items: { $ref: '#/$defs/tree' }, maxItems: 2 },
          },
          required: ['value'],
          additionalProperties: false,
        },
      },
    };
    for (let seed = 0; seed < 20; seed++) {
      const text = write(schemaGrammar(tree), new Random('tree', seed));
      expect(isValid(JSON.parse(text), tree, tree), text).toBe(true);
    }
  });

  it('any object is one', () => {
    for (let seed = 0; seed < 40; seed++) {
      const parsed = JSON.parse(write(objectGrammar, new Random('object', seed)));
      expect(parsed).not.toBeNull();
      expect(Array.isArray(parsed) || typeof parsed !== 'object').toBe(false);
    }
  });

  it.each([
    ['{"a":1,"b":"x"}', true],
    ['{"b":"x"}', false],
    ['{"a":1}', true],
    ['{"a":1,"c":2}', false],
    ['{"a":01}', false],
    ['{ "a":1}', false],
    ['{"a":1,"b":"\u00e9\\u00e9\\n"}', true],
    ['{"a":1,"b":"\\ud800"}', false],
  ])('%s: %s', (text, whole) => {
    const grammar = schemaGrammar({
      type: 'object',
      properties: { a: { type: 'integer' }, b: { type: 'string' } },
      required: ['a'],
    });
    let state: ReturnType<typeof matcher> | undefined = matcher(grammar);
    for (const byte of new TextEncoder().encode(text)) state = state?.next(byte);
    expect(state?.accepting ?? false).toBe(whole);
  });

  it('refuses by name what it cannot promise', () => {
    const bad = (schema: JsonSchema) => () => schemaGrammar(schema);
    expect(bad({ type: 'object', properties: { a: { type: 'integer', minimum: 3 } } })).toThrow(
      /#\/properties\/a.*"minimum"/,
    );
    expect(bad({ type: 'string', pattern: 'x+' })).toThrow(UserError);
    expect(bad({ type: 'thing' })).toThrow(/types are object/);
    expect(bad({ $ref: 'http://elsewhere' })).toThrow(/same schema/);
    expect(bad({ $ref: '#/$defs/none' })).toThrow(/not there/);
    expect(bad(false)).toThrow(/nothing is valid/);
  });

  it('an object may have hundreds of optional properties', () => {
    const names = Array.from({ length: 400 }, (_, i) => `p${i}`);
    const grammar = schemaGrammar({
      type: 'object',
      properties: Object.fromEntries(names.map((name) => [name, { type: 'integer' }])),
    });
    const isWhole = (text: string) => {
      let state: ReturnType<typeof matcher> | undefined = matcher(grammar);
      for (const byte of new TextEncoder().encode(text)) state = state?.next(byte);
      return state?.accepting ?? false;
    };
    expect(['{}', '{"p7":1}', '{"p7":1,"p399":2}', '{"p399":2,"p7":1}', '{"p7":1,}'].map(isWhole)).toEqual([
      true,
      true,
      true,
      false,
      false,
    ]);
  });

  it('bounds the parts and the characters of a schema, alternatives written out', () => {
    const ten = (name: string) => ({
      anyOf: Array.from({ length: 10 }, (_, i) => ({ properties: { [`${name}${i}`]: { type: 'null' } } })),
    });
    const schema = { type: 'object', allOf: ['a', 'b', 'c', 'd'].map(ten) };
    expect(() => schemaGrammar(schema)).toThrow(/more than 5000 parts/);
    // The same part is written out only once, however often it occurs.
    let doubled: JsonSchema = { type: 'integer' };
    for (let i = 0; i < 40; i++) doubled = { anyOf: [{}, {}], properties: { a: doubled } };
    expect(() => schemaGrammar(doubled)).not.toThrow();
    expect(() => schemaGrammar({ enum: Array.from({ length: 6000 }, (_, i) => i) })).toThrow(/more than 5000 parts/);
    expect(() => schemaGrammar({ const: 'x'.repeat(200_000) })).toThrow(/more than 131072 characters/);
  });
});
