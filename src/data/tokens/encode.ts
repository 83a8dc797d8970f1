/** Encodes examples as token records, a few hundred at a time to keep the tokenizer's threads busy. */
import { checkArguments, filledText, limit } from '../../arguments.ts';
import { ChatFormat, type FormatOptions, type TextTokenizer } from '../../text/chat-format.ts';
import type {
  Conversation,
  Example,
  ExampleOf,
  GradedSolution,
  LabelledSteps,
  Message,
  PreferencePair,
  PromptExample,
  Shape,
  TextExample,
  UnpairedExample,
} from '../shapes/shapes.ts';
import { sequence, type TokenRecord, type TokenSequence } from './record.ts';

/** Length limits and prompt format of encoding. */
export interface EncodeOptions extends FormatOptions {
  /** Longer sequences are left out and counted (plain text is cut into pieces of this length). */
  maxLength?: number;
  /** Longer prompts keep their last tokens, which are closest to the response. */
  maxPromptLength?: number;
  /** Longer responses keep their first tokens. */
  maxResponseLength?: number;
  /** The text after each step; a step's label belongs to its last token. */
  stepSeparator?: string;
}

/** The texts to tokenise for one example, and the function that builds its record from their ids. */
interface Draft {
  texts: string[];
  sequences(ids: Int32Array[]): TokenSequence[];
}

export type Encoded = { records: TokenRecord[] } | { dropped: string };

const limits = {
  ...{ maxLength: limit(1), maxPromptLength: limit(0), maxResponseLength: limit(1) },
  stepSeparator: filledText,
};

/** Encodes examples of one shape as token records. */
export class ExampleEncoder<S extends Shape = Shape> {
  readonly #tokenizer: TextTokenizer;
  readonly #shape: S;
  readonly #options: EncodeOptions;
  readonly #format: ChatFormat;
  readonly sources: string[] = [];
  readonly #sourceIndex = new Map<string, number>();
  #examples = 0;

  constructor(tokenizer: TextTokenizer, shape: S, options: EncodeOptions = {}) {
    checkArguments('Encoding', options, limits);
    this.#tokenizer = tokenizer;
    this.#shape = shape;
    this.#options = options;
    this.#format = new ChatFormat(tokenizer, options);
  }

  /** Results in the order of the examples. */
  async encode(examples: readonly ExampleOf[S][]): Promise<Encoded[]> {
    const first = this.#examples;
    this.#examples += examples.length;
    const drafts = examples.map((example) => this.#draft(example));
    const ids = await this.#tokenizer.encodeBatch(drafts.flatMap((draft) => draft.texts));
    let at = 0;
    return drafts.map((draft, index) => {
      const own = ids.slice(at, at + draft.texts.length);
      at += draft.texts.length;
      return this.#finish(draft.sequences(own), examples[index] as Example, first + index);
    });
  }

  #finish(sequences: TokenSequence[], example: Example, index: number): Encoded {
    const { maxLength = Number.POSITIVE_INFINITY } = this.#options;
    if (sequences.some(({ ids }) => ids.length > maxLength)) return { dropped: 'too long' };
    if (sequences.length === 0 || sequences.some(({ ids }) => ids.length === 0)) return { dropped: 'no tokens' };
    const { margin = 0, group = 0 } = example as PreferencePair & GradedSolution;
    const facts = { example: index, label: labelOf(example), margin, group, source: this.#source(example.source) };
    if (this.#shape !== 'text') return { records: [{ sequences, ...facts }] };
    return { records: sequences.map((one) => ({ sequences: [one], ...facts })) };
  }

  #draft(example: Example): Draft {
    switch (this.#shape as Shape) {
      case 'preference': {
        const { prompt, chosen, rejected } = example as PreferencePair;
        return this.#responses(prompt, [chosen, rejected]);
      }
      case 'unpaired':
        return this.#responses((example as UnpairedExample).prompt, [(example as UnpairedExample).completion]);
      case 'graded':
        return this.#responses((example as GradedSolution).prompt, [(example as GradedSolution).solution]);
      case 'steps':
        return this.#steps(example as LabelledSteps);
      case 'prompts': {
        const texts = [this.#format.prompt((example as PromptExample).prompt)];
        return { texts, sequences: ([ids]) => [sequence([this.#cutPrompt(ids as Int32Array)], [])] };
      }
      case 'messages':
        return this.#conversation((example as Conversation).messages);
      case 'text':
        return { texts: [(example as TextExample).text], sequences: ([ids]) => this.#pieces(ids as Int32Array) };
    }
  }

  #responses(prompt: Message[], responses: string[]): Draft {
    const promptText = this.#format.prompt(prompt);
    const texts = [promptText, ...responses.map((response) => this.#format.response(prompt, promptText, response))];
    return {
      texts,
      sequences: ([promptIds, ...responses]) => {
        const start = this.#cutPrompt(promptIds as Int32Array);
        return responses.map((ids) => {
          const response = this.#format.closed(ids).subarray(0, this.#options.maxResponseLength);
          return sequence([start, response], [start.length, start.length + response.length]);
        });
      },
    };
  }

  #steps({ prompt, steps }: LabelledSteps): Draft {
    const { stepSeparator } = this.#options;
    const texts = steps.map(({ text }, index) => this.#format.step(text, index, stepSeparator));
    return {
      texts: [this.#format.prompt(prompt), ...texts],
      sequences: ([promptIds, ...stepIds]) => {
        const start = this.#cutPrompt(promptIds as Int32Array);
        const marks: number[] = [];
        let end = start.length;
        for (const [index, ids] of stepIds.entries()) {
          end += ids.length;
          const label = steps[index]?.label ?? null;
          if (label !== null) marks.push(end - 1, label);
        }
        return [sequence([start, ...stepIds], [start.length, end], marks)];
      },
    };
  }

  #conversation(messages: Message[]): Draft {
    if (!this.#format.chat) return this.#dialogue(messages);
    const responses = messages.filter(({ role }) => role === 'assistant');
    const last = messages.at(-1) as Message;
    // A single response at the end needs no search for the assistant's turns, which would render the chat several
    // times.
    if (responses.length === 1 && last.role === 'assistant')
      return this.#responses(messages.slice(0, -1), [last.content]);
    const { ids, assistantMask } = this.#format.encodeChat(messages);
    return { texts: [], sequences: () => [sequence([Int32Array.from(ids)], runs(assistantMask))] };
  }

  /** A conversation without a template: each response and the text before it are tokenised separately. */
  #dialogue(messages: Message[]): Draft {
    const texts: string[] = [];
    let before: Message[] = [];
    let turnsBefore = 0;
    for (const message of messages) {
      if (message.role !== 'assistant') before.push(message);
      else {
        const promptText = this.#format.prompt(before);
        texts.push(promptText, this.#format.response(before, promptText, message.content));
        before = [];
        turnsBefore++;
      }
    }
    return {
      texts,
      sequences: (ids) => {
        const spans: number[] = [];
        const parts: Int32Array[] = [Int32Array.from(this.#format.bos)];
        let at = this.#format.bos.length;
        for (let turn = 0; turn < turnsBefore; turn++) {
          const response = this.#format.closed(ids[2 * turn + 1] as Int32Array);
          const lead = ids[2 * turn] as Int32Array;
          parts.push(lead, response);
          spans.push(at + lead.length, at + lead.length + response.length);
          at += lead.length + response.length;
        }
        return [sequence(parts, spans)];
      },
    };
  }

  #pieces(ids: Int32Array): TokenSequence[] {
    const { eosId } = this.#tokenizer;
    const whole = Int32Array.from([...this.#format.bos, ...ids, ...(eosId === undefined ? [] : [eosId])]);
    const size = this.#options.maxLength ?? whole.length;
    const pieces: TokenSequence[] = [];
    for (let start = 0; start < whole.length; start += size) {
      const piece = whole.subarray(start, start + size);
      // A piece of one token has nothing to be predicted from.
      if (piece.length > 1 || pieces.length === 0) pieces.push(sequence([piece], [0, piece.length]));
    }
    return pieces;
  }

  #cutPrompt(ids: Int32Array): Int32Array {
    const { bos } = this.#format;
    const room = (this.#options.maxPromptLength ?? Number.POSITIVE_INFINITY) - bos.length;
    const kept = ids.length > room ? ids.subarray(ids.length - Math.max(room, 0)) : ids;
    return bos.length === 0 ? kept : Int32Array.from([...bos, ...kept]);
  }

  #source(name: string | undefined): number {
    if (name === undefined) return -1;
    let index = this.#sourceIndex.get(name);
    if (index === undefined) {
      index = this.sources.push(name) - 1;
      this.#sourceIndex.set(name, index);
    }
    return index;
  }
}

function labelOf(example: Example): boolean {
  if ('label' in example) return example.label;
  return 'correct' in example ? example.correct : false;
}

/** [start, end, …] of the runs of ones. */
function runs(mask: Uint8Array): number[] {
  const spans: number[] = [];
  for (let i = 0; i < mask.length; i++) if (mask[i] !== (mask[i - 1] ?? 0)) spans.push(i);
  if (spans.length % 2 === 1) spans.push(mask.length);
  return spans;
}
