/**
 * Regular expressions from files of strangers (tokenizer.json, adapter_config.json). An engine that backtracks takes
 * exponential time on some of them, and the `tokenizers` package then ends the whole process. So the shape of a pattern is
 * judged before it is used; no text is matched here.
 *
 *     patternRisk('(a+)+$')        // 'a repetition inside a repetition'
 */
const LONGEST = 20_000;
const MOST_REPEATS = 1_000;
const DEEPEST = 50;

/**
 * What makes a pattern dangerous, or undefined. A syntax error is the engine's to report. With k open repetitions in a row a
 * text of n characters may take nᵏ steps: `mostOpen` may be larger where texts are short.
 */
export function patternRisk(source: string, mostOpen = 2): string | undefined {
  if (source.length > LONGEST) return `it is longer than ${LONGEST} characters`;
  try {
    return new Shape(source, mostOpen).judge();
  } catch (error) {
    if (error instanceof Risk) return error.message;
    throw error;
  }
}

class Risk extends Error {}

/** What a part of a pattern may do. */
interface Part {
  /** Repetitions without a bound (or with a wide one) that may follow one another in one match. */
  open: number;
  /** How often the part's innermost atom is written out by nested counts. */
  copies: number;
  /** The character it starts with; undefined where that may be one of several. */
  first: string | undefined;
  /** It may match nothing. */
  optional?: boolean;
  /** The first characters of the alternatives of a group that is one. */
  choices?: (string | undefined)[];
}

class Shape {
  readonly #source: string;
  readonly #mostOpen: number;
  #at = 0;
  #depth = 0;

  constructor(source: string, mostOpen: number) {
    this.#source = source;
    this.#mostOpen = mostOpen;
  }

  judge(): string | undefined {
    while (this.#at < this.#source.length) {
      this.#alternatives();
      // A closing bracket too many: the engine reports it.
      this.#at++;
    }
    return undefined;
  }

  #alternatives(): Part {
    const parts: Part[] = [this.#sequence()];
    while (this.#source[this.#at] === '|') {
      this.#at++;
      parts.push(this.#sequence());
    }
    const most = (of: (part: Part) => number) => parts.reduce((sum, part) => Math.max(sum, of(part)), 0);
    const choices = parts.map(({ first }) => first);
    return {
      open: most(({ open }) => open),
      copies: most(({ copies }) => copies),
      first: parts.length === 1 ? choices[0] : undefined,
      ...(parts.length > 1 && { choices }),
    };
  }

  #sequence(): Part {
    const whole: Part = { open: 0, copies: 1, first: undefined };
    for (let index = 0; this.#at < this.#source.length && !'|)'.includes(this.#source[this.#at] as string); index++) {
      const part = this.#repeated(this.#atom());
      // On long texts, what must follow two of them makes every way to share the text between them be tried.
      if (this.#mostOpen <= 2 && whole.open === 2 && !part.optional) {
        throw new Risk('something has to follow two open repetitions');
      }
      whole.open += part.open;
      whole.copies = Math.max(whole.copies, part.copies);
      if (index === 0) whole.first = part.first;
    }
    this.#checkOpen(whole.open);
    return whole;
  }

  #checkOpen(open: number): void {
    if (open > this.#mostOpen) throw new Risk(`more than ${this.#mostOpen} open repetitions follow one another`);
  }

  #repeated(part: Part): Part {
    let result = part;
    for (let count = this.#quantifier(); count !== undefined; count = this.#quantifier()) {
      const { least, most } = count;
      const wide = most - least > 8;
      if (wide && result.open > 0) throw new Risk('a repetition inside a repetition');
      if (wide && overlapping(result.choices)) throw new Risk('a repetition of alternatives that may begin alike');
      const copies = result.copies * Math.max(1, Number.isFinite(most) ? most : least);
      if (copies > MOST_REPEATS) throw new Risk(`it asks for more than ${MOST_REPEATS} repetitions`);
      // A group that may come three times brings its open repetitions three times.
      const open = wide ? 1 : result.open * Math.max(1, most);
      this.#checkOpen(open);
      result = { open, copies, first: least === 0 ? undefined : result.first, optional: least === 0 };
    }
    return result;
  }

  #quantifier(): { least: number; most: number } | undefined {
    const rest = this.#source.slice(this.#at, this.#at + 40);
    const found = /^(?:([*+?])|\{(\d*)(,?)(\d*)\})[?+]?/.exec(rest);
    if (found === null || found[0].startsWith('{}') || found[0].startsWith('{,}')) return undefined;
    this.#at += found[0].length;
    const [, sign, low = '', comma, high = ''] = found;
    if (sign !== undefined) return { least: sign === '+' ? 1 : 0, most: sign === '?' ? 1 : Number.POSITIVE_INFINITY };
    const least = Number(low);
    return { least, most: comma === '' ? least : high === '' ? Number.POSITIVE_INFINITY : Number(high) };
  }

  #atom(): Part {
    const char = this.#source[this.#at] as string;
    if (char === '(') return this.#group();
    if (char === '[') return this.#set();
    if (char === '\\') return this.#escape();
    this.#at++;
    return { open: 0, copies: 1, first: '.^$'.includes(char) ? undefined : char };
  }

  #group(): Part {
    if (++this.#depth > DEEPEST) throw new Risk(`its groups are nested more than ${DEEPEST} deep`);
    const opening = /^\((?:\?(?:<[=!]|<[^>]*>|P<[^>]*>|'[^']*'|[=!>:]|[a-zA-Z-]*[:)])?)?/.exec(
      this.#source.slice(this.#at, this.#at + 200),
    );
    this.#at += opening?.[0].length ?? 1;
    // `(?i)` opens nothing.
    if (opening?.[0].endsWith(')')) {
      this.#depth--;
      return { open: 0, copies: 1, first: undefined };
    }
    const body = this.#alternatives();
    if (this.#source[this.#at] === ')') this.#at++;
    this.#depth--;
    // An atomic group gives nothing back.
    return opening?.[0] === '(?>' ? { ...body, open: 0 } : body;
  }

  /** A set of characters, which may hold others in Oniguruma: `[a-z&&[^aeiou]]`. */
  #set(): Part {
    let depth = 0;
    do {
      const char = this.#source[this.#at];
      if (char === '\\') this.#at++;
      else if (char === '[') {
        depth++;
        // A closing bracket at the very start stands for itself.
        if (/^\^?\]/.test(this.#source.slice(this.#at + 1, this.#at + 3))) {
          this.#at += this.#source[this.#at + 1] === '^' ? 2 : 1;
        }
      } else if (char === ']') depth--;
      this.#at++;
    } while (depth > 0 && this.#at < this.#source.length);
    return { open: 0, copies: 1, first: undefined };
  }

  #escape(): Part {
    const found = /^\\(?:[pP]\{[^}]*\}|x\{[^}]*\}|x[\da-fA-F]{2}|u[\da-fA-F]{4}|[gk]<[^>]*>|[\s\S]?)/.exec(
      this.#source.slice(this.#at, this.#at + 60),
    );
    const text = found?.[0] ?? '\\';
    this.#at += text.length;
    if (/^\\g</.test(text)) throw new Risk('it calls itself');
    return { open: 0, copies: 1, first: literalOf(text) };
  }
}

/** `\.` is a dot and `\n` a line end; `\w` and its like are several characters. */
function literalOf(text: string): string | undefined {
  if (/^\\[^a-zA-Z\d]$/.test(text)) return text.slice(1);
  return /^\\[rntfv]$/.test(text) ? text : undefined;
}

/** Whether two alternatives may start at the same text. */
function overlapping(choices: (string | undefined)[] | undefined): boolean {
  if (choices === undefined) return false;
  return choices.includes(undefined) || new Set(choices).size < choices.length;
}
