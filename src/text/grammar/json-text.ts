/** The grammar of JSON itself, without white space: numbers, strings, lists, objects, any value. */
import { choice, type GrammarNode, literal, optional, repeat, rule, sequence, set } from './grammar.ts';

/** The length of numbers is bounded; otherwise a model could write digits without end. */
const mostDigits = 15;
const mostExponentDigits = 2;

const digit = set([0x30, 0x39]);
const hex = set([0x30, 0x39], [0x41, 0x46], [0x61, 0x66]);
export const integer = sequence([
  optional(literal('-')),
  choice([literal('0'), sequence([set([0x31, 0x39]), repeat(digit, 0, mostDigits - 1)])]),
]);
export const number = sequence([
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

/** A string of `least` to `most` characters. */
export const text = (least = 0, most = Number.POSITIVE_INFINITY): GrammarNode =>
  sequence([literal('"'), repeat(character, least, most), literal('"')]);

/** A member of an object. */
export const pair = (name: GrammarNode, content: GrammarNode): GrammarNode => sequence([name, literal(':'), content]);

/** Any JSON value, nested to any depth. */
export const anyValue: GrammarNode = rule(() => value);
export const anyObject: GrammarNode = mapOf(anyValue);
const value: GrammarNode = choice([
  anyObject,
  listOf([], anyValue, 0, Number.POSITIVE_INFINITY),
  text(),
  number,
  literal('true'),
  literal('false'),
  literal('null'),
]);

/** An object with any names. */
export function mapOf(content: GrammarNode): GrammarNode {
  const member = pair(text(), content);
  const members = sequence([member, repeat(sequence([literal(','), member]), 0, Number.POSITIVE_INFINITY)]);
  return sequence([literal('{'), optional(members), literal('}')]);
}

/** A list of `least` to `most` items: the first ones in order, then any number of `rest`. */
export function listOf(first: readonly GrammarNode[], rest: GrammarNode, least: number, most: number): GrammarNode {
  const comma = (i: number, node: GrammarNode) => (i === 0 ? node : sequence([literal(','), node]));
  const unlessEnough = (i: number, node: GrammarNode) => (least > i ? node : optional(node));
  const fixed = Math.min(first.length, most);
  // From the last item to the first: each is followed by whatever may come after it.
  let tail = sequence([]);
  if (most > fixed) {
    const further = repeat(sequence([literal(','), rest]), Math.max(0, least - fixed - 1), most - fixed - 1);
    tail = unlessEnough(fixed, sequence([comma(fixed, rest), further]));
  }
  for (let i = fixed - 1; i >= 0; i--) tail = unlessEnough(i, sequence([comma(i, first[i] as GrammarNode), tail]));
  return sequence([literal('['), tail, literal(']')]);
}

/** An object's members in order; those not required may be left out. */
export function inOrder(members: readonly { node: GrammarNode; required: boolean }[]): GrammarNode {
  // The grammars that follow from a member on: `first` if no member is written yet, `later` if a comma must come before
  // the next. They are built from the last member to the first, so that each exists once; written out for each choice,
  // their number would double with every member.
  let [first, later] = [sequence([]), sequence([])];
  for (const { node, required } of members.toReversed()) {
    const [begin, goOn] = [sequence([node, later]), sequence([literal(','), node, later])];
    first = required ? begin : choice([begin, first]);
    later = required ? goOn : choice([goOn, later]);
  }
  return sequence([literal('{'), first, literal('}')]);
}
