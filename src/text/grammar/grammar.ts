/**
 * Grammars over bytes, matched one byte at a time: which texts can still become a sentence of the grammar.
 *
 *     const start = matcher(sequence([literal('{'), repeat(digit, 1, 3), literal('}')]));
 *     start.next(0x7b)?.next(0x37)?.accepting;                       // false: "{7" is incomplete
 *
 * A state is a set of stacks of what must still follow, as in a pushdown automaton. States and transitions are cached,
 * so that repeated ones (the inside of a string) cost one look-up.
 */

/** A grammar over bytes, for constrained decoding. */
export type GrammarNode =
  | { kind: 'set'; bytes: Uint8Array }
  | { kind: 'sequence'; parts: readonly GrammarNode[] }
  | { kind: 'choice'; options: readonly GrammarNode[] }
  | { kind: 'repeat'; node: GrammarNode; least: number; most: number; rest?: GrammarNode }
  | { kind: 'rule'; resolve: () => GrammarNode };

/** One byte of the given ranges. */
export function set(...ranges: readonly (readonly [from: number, to: number])[]): GrammarNode {
  const bytes = new Uint8Array(256);
  for (const [from, to] of ranges) bytes.fill(1, from, to + 1);
  return { kind: 'set', bytes };
}

/** A grammar of parts one after another. */
export const sequence = (parts: readonly GrammarNode[]): GrammarNode => ({ kind: 'sequence', parts });
/** A grammar of which one option must match. */
export const choice = (options: readonly GrammarNode[]): GrammarNode => ({ kind: 'choice', options });
/** A grammar that may be absent. */
export const optional = (node: GrammarNode): GrammarNode => repeat(node, 0, 1);
/** A grammar that is resolved when it is reached, so that it can be recursive. */
export const rule = (resolve: () => GrammarNode): GrammarNode => ({ kind: 'rule', resolve });

/** A grammar `least` to `most` times in a row; `most` may be Infinity. */
export function repeat(node: GrammarNode, least: number, most: number): GrammarNode {
  return { kind: 'repeat', node, least, most };
}

const single = Array.from({ length: 256 }, (_, byte) => set([byte, byte]));

/** A grammar of exactly this text, as UTF-8. */
export function literal(text: string): GrammarNode {
  return sequence(Array.from(new TextEncoder().encode(text), (byte) => single[byte] as GrammarNode));
}

interface Stack {
  id: number;
  node: GrammarNode;
  below: Stack | null;
  /** Stacks on top of this one, by their top node; equal stacks are one object. */
  above: Map<GrammarNode, Stack>;
}

/** The state of a match. */
export interface State {
  /** Whether the text so far is a complete sentence. */
  readonly accepting: boolean;
  /** Whether nothing can follow. */
  readonly ended: boolean;
  /** The state after one more byte; undefined if no sentence continues with it. */
  next(byte: number): State | undefined;
}

/** The state before the first byte. */
export function matcher(grammar: GrammarNode): State {
  return new Matcher().start(grammar);
}

class Matcher {
  readonly #bottom = new Map<GrammarNode, Stack>();
  readonly #states = new Map<string, MatchState>();
  #stacks = 0;

  start(grammar: GrammarNode): State {
    return this.state(this.#expand([this.#push(grammar, null)]));
  }

  /** Stacks whose top is a set of bytes; null stands for a complete sentence. */
  state(stacks: readonly (Stack | null)[]): MatchState {
    const unique = [...new Set(stacks)].sort((a, b) => (a?.id ?? -1) - (b?.id ?? -1));
    const key = unique.map((stack) => stack?.id ?? -1).join();
    const known = this.#states.get(key);
    if (known !== undefined) return known;
    const made = new MatchState(this, unique);
    this.#states.set(key, made);
    return made;
  }

  step(stacks: readonly (Stack | null)[], byte: number): MatchState | undefined {
    const below: (Stack | null)[] = [];
    for (const stack of stacks) if (stack?.node.kind === 'set' && stack.node.bytes[byte] === 1) below.push(stack.below);
    return below.length === 0 ? undefined : this.state(this.#expand(below));
  }

  #push(node: GrammarNode, below: Stack | null): Stack {
    const above = below === null ? this.#bottom : below.above;
    let stack = above.get(node);
    if (stack === undefined) {
      stack = { id: this.#stacks++, node, below, above: new Map() };
      above.set(node, stack);
    }
    return stack;
  }

  #expand(stacks: readonly (Stack | null)[]): (Stack | null)[] {
    const done: (Stack | null)[] = [];
    const seen = new Set<Stack | null>();
    const waiting = [...stacks];
    for (let stack = waiting.pop(); stack !== undefined; stack = waiting.pop()) {
      if (seen.has(stack)) continue;
      seen.add(stack);
      if (stack === null || stack.node.kind === 'set') {
        done.push(stack);
        continue;
      }
      const { node, below } = stack;
      if (node.kind === 'sequence')
        waiting.push(node.parts.reduceRight<Stack | null>((rest, part) => this.#push(part, rest), below));
      else if (node.kind === 'choice') for (const option of node.options) waiting.push(this.#push(option, below));
      else if (node.kind === 'rule') waiting.push(this.#push(node.resolve(), below));
      else {
        if (node.least <= 0) waiting.push(below);
        if (node.most > 0) waiting.push(this.#push(node.node, this.#push(restOf(node), below)));
      }
    }
    return done;
  }
}

/** The rest of a repetition after one round; the same node if its bounds do not change. */
function restOf(node: Extract<GrammarNode, { kind: 'repeat' }>): GrammarNode {
  if (node.least <= 0 && node.most === Number.POSITIVE_INFINITY) return node;
  node.rest ??= repeat(node.node, node.least - 1, node.most - 1);
  return node.rest;
}

class MatchState implements State {
  readonly accepting: boolean;
  readonly ended: boolean;
  readonly #matcher: Matcher;
  readonly #stacks: readonly (Stack | null)[];
  readonly #next = new Map<number, MatchState | undefined>();

  constructor(owner: Matcher, stacks: readonly (Stack | null)[]) {
    this.#matcher = owner;
    this.#stacks = stacks;
    this.accepting = stacks.includes(null);
    this.ended = stacks.every((stack) => stack === null);
  }

  next(byte: number): MatchState | undefined {
    if (!this.#next.has(byte)) this.#next.set(byte, this.#matcher.step(this.#stacks, byte));
    return this.#next.get(byte);
  }
}
