/** Random schemas: what their grammars generate is valid by a validator that shares no code with them. */
import { describe, expect, it } from 'vitest';
import { UserError } from '../../errors.ts';
import { Random } from '../../random.ts';
import { type GrammarNode, matcher, type State } from './grammar.ts';
import { type JsonSchema, schemaGrammar } from './json-schema.ts';
import { isValid, randomSchema, randomSentence } from './schema.test-support.ts';

/** A grammar, or the reason why there is none. */
function attempt(schema: JsonSchema): GrammarNode | string {
  try {
    return schemaGrammar(schema);
  } catch (error) {
    if (error instanceof UserError) return error.message;
    throw new Error(`${JSON.stringify(schema)}: ${(error as Error).stack}`);
  }
}

const small: readonly unknown[] = [
  ...['', 'x', 'xy', 'xyz', 'xyzx', 0, 1, -1.5, null, true, false, [], [1], [null], ['x', 1], [0, 0, 0], {}],
  ...[{ a: 1 }, { a: 'x' }, { b: null }, { a: 'x', b: null }, { a: {}, b: [] }, { ö: 1, 'c"': true }, [[]], [{}]],
];

describe('random schemas', () => {
  it('are kept to, or refused in words; those that nothing fits are refused', () => {
    const counts = { written: 0, accepted: 0, overlapping: 0, empty: 0 };
    for (let seed = 0; seed < 3000; seed++) {
      const random = new Random('any schema', seed);
      const body = randomSchema(random, 3);
      const schema: JsonSchema =
        typeof body === 'boolean'
          ? body
          : { ...body, $defs: { one: randomSchema(random, 2), two: randomSchema(random, 1) } };
      const grammar = attempt(schema);
      if (typeof grammar === 'string') {
        if (/at once \(/.test(grammar)) counts.overlapping++;
        if (/nothing is valid/.test(grammar)) {
          counts.empty++;
          for (const value of small)
            expect(isValid(value, schema), `${JSON.stringify(schema)}\n${JSON.stringify(value)}`).toBe(false);
        }
        continue;
      }
      counts.accepted++;
      for (let i = 0; i < 4; i++) {
        const text = randomSentence(grammar, random);
        if (text === undefined) continue;
        counts.written++;
        expect(isValid(JSON.parse(text), schema), `${JSON.stringify(schema)}\n${text}`).toBe(true);
      }
    }
    expect(counts.accepted).toBeGreaterThan(1000);
    expect(counts.written).toBeGreaterThan(3000);
    expect(counts.overlapping).toBeGreaterThan(20);
    expect(counts.empty).toBeGreaterThan(100);
  }, 120_000);
});

function accepts(schema: JsonSchema, value: unknown): boolean {
  let state: State | undefined = matcher(schemaGrammar(schema));
  for (const byte of Buffer.from(JSON.stringify(value))) state = state?.next(byte);
  return state?.accepting ?? false;
}

describe('schemas that stand beside each other', () => {
  const text = { $defs: { a: { type: 'string' } } };
  it.each<[JsonSchema, unknown[], unknown[]]>([
    [{ ...text, $ref: '#/$defs/a', maxLength: 2 }, ['ab'], ['abc', 1]],
    [{ ...text, maxLength: 1, anyOf: [{ $ref: '#/$defs/a' }] }, ['a'], ['ab']],
    [{ allOf: [{ type: 'string', maxLength: 2 }, { maxLength: 9 }] }, ['ab'], ['abc']],
    [{ allOf: [{ enum: [1, 2] }, { enum: [2, 3] }] }, [2], [1, 3]],
    [{ allOf: [{ type: ['integer', 'null'] }, { type: ['number', 'string'] }] }, [1], [1.5, null, 'x']],
    [
      {
        type: 'object',
        properties: { a: { type: ['integer', 'null'] } },
        anyOf: [{ properties: { a: { const: 3 } } }],
      },
      [{ a: 3 }, {}],
      [{ a: 4 }],
    ],
    [{ type: 'object', required: ['b'], additionalProperties: { type: 'null' } }, [{ b: null }], [{ b: 0 }, {}]],
    [{ type: 'string', enum: [1, 'x'] }, ['x'], [1]],
    [{ allOf: [{ type: 'integer' }, { minLength: 2 }] }, [1], ['ab']],
    [{ type: 'object', properties: { a: false, b: { type: 'null' } } }, [{}, { b: null }], [{ a: 1 }]],
    [{ type: 'array', prefixItems: [{ type: 'null' }], items: false }, [[], [null]], [[null, null], [1]]],
    [
      { anyOf: [{ type: 'null' }, { const: 1 }], oneOf: [{ type: 'integer' }, { type: 'string' }] },
      [1],
      [null, 2, 'x'],
    ],
  ])('%j', (schema, fitting, others) => {
    for (const value of fitting) {
      expect(isValid(value, schema)).toBe(true);
      expect(accepts(schema, value), JSON.stringify(value)).toBe(true);
    }
    for (const value of others) expect(accepts(schema, value), JSON.stringify(value)).toBe(false);
  });

  it('alternatives of oneOf must exclude each other', () => {
    const kind = (name: string, more: object = {}) => ({
      properties: { kind: { const: name }, ...more },
      required: ['kind'],
    });
    const node = { $ref: '#/$defs/node' };
    const tree = { $ref: '#/$defs/node', $defs: { node: { oneOf: [kind('leaf'), kind('fork', { left: node })] } } };
    for (const fine of [
      { oneOf: [{ type: 'integer' }, { type: 'string' }, { type: 'null' }] },
      { oneOf: [{ enum: [1, 2] }, { enum: [3] }] },
      {
        oneOf: [
          { type: 'string', maxLength: 2 },
          { type: 'string', minLength: 3 },
        ],
      },
      tree,
      { oneOf: Array.from({ length: 100 }, (_, i) => kind(`k${i}`, { text: { type: 'string' } })) },
    ])
      expect(typeof attempt(fine)).toBe('object');
    for (const both of [
      { oneOf: [{ type: 'integer' }, { type: 'number' }] },
      { oneOf: [{ enum: [1, 2] }, { enum: [2] }] },
      { oneOf: [{ properties: { kind: { const: 'a' } } }, { properties: { kind: { const: 'b' } } }] },
      { oneOf: [{ required: ['a'] }, { required: ['b'] }] },
    ])
      expect(attempt(both)).toMatch(
        /^The schema at #\/oneOf has alternatives that a value may fit at once \(0 and 1\)/,
      );
  });
});

describe('schemas that are refused', () => {
  it.each<[JsonSchema, RegExp]>([
    [{ allOf: [{ type: 'integer' }, { type: 'string' }] }, /nothing is valid at #/],
    [{ properties: { a: { type: 'null', const: 5 } }, required: ['a'], type: 'object' }, /at #\/properties\/a\./],
    [{ type: 'string', const: 5 }, /nothing is valid/],
    [{ type: 'array', prefixItems: [{ type: 'null' }], items: false, minItems: 3 }, /nothing is valid at #\/items/],
    [{ type: 'object', required: ['b'], additionalProperties: false }, /#.*"b" in "required".*"additionalProperties"/],
    [{ type: 'object', required: 'ab' }, /# has a wrong "required": expected a list of names/],
    [{ type: 'object', required: 5 }, /"required"/],
    [{ anyOf: [null] }, /#\/anyOf\/0 is not an object/],
    [{ anyOf: [] }, /"anyOf": expected a list, not empty/],
    [{ $ref: '#/a%' }, /broken escape/],
    [{ $ref: '#/constructor' }, /not there/],
    [{ $ref: 5 }, /"\$ref": expected text/],
    [{ properties: { 'a/b': { type: 'string', minLength: 5, maxLength: 2 } } }, /#\/properties\/a~1b wants at least 5/],
    [{ type: 'string', maxLength: 1.5 }, /"maxLength": expected a whole number/],
    [{ properties: { a: { $id: 'x' } } }, /"\$id"/],
    [JSON.parse('{"const": [1e999]}'), /number that is too large/],
    [{ $ref: '#/$defs/a', $defs: { a: { anyOf: [{ $ref: '#/$defs/a' }, true] } } }, /refers to itself/],
    [{ type: 'object', properties: { next: { $ref: '#' } }, required: ['next'] }, /nothing is valid/],
  ])('%j', (schema, told) => {
    expect(attempt(schema)).toMatch(told);
  });

  it('because they would cost too much', () => {
    const pairs = Array.from({ length: 30 }, (_, i) => ({
      anyOf: [{ properties: { [`a${i}`]: { type: 'null' } } }, { properties: { [`b${i}`]: { type: 'null' } } }],
    }));
    expect(attempt({ type: 'object', allOf: pairs })).toMatch(/too long to compare/);
    const chain = Object.fromEntries(
      Array.from({ length: 2000 }, (_, i) => [`a${i}`, { type: 'array', items: { $ref: `#/$defs/a${i + 1}` } }]),
    );
    expect(attempt({ $ref: '#/$defs/a0', $defs: { ...chain, a2000: true } })).toMatch(/nested deeper than 250 levels/);
  });
});
