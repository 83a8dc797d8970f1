/**
 * Where the time to the first text of a streamed request goes: the moments at which it reaches each stage of the server, by wrapping
 * the stages' functions. The times are of the machine's clock, so that the client's process adds its own two.
 */
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { Admission } from '../../src/models/generate/admission.ts';
import { KvCache } from '../../src/models/generate/cache/cache.ts';
import { Engine } from '../../src/models/generate/engine.ts';
import { Sampler } from '../../src/models/index.ts';
import { EventStream } from '../../src/serve/http.ts';
import { Registry } from '../../src/serve/index.ts';
import { Graph } from '../../src/tensor/index.ts';
import { Tokenizer } from '../../src/text/index.ts';

export const clock = (): number => performance.timeOrigin + performance.now();

interface Span {
  name: string;
  start: number;
  end: number;
}

// biome-ignore lint/suspicious/noExplicitAny: methods of any class
type Methods = Record<string, (...args: any[]) => unknown>;

const wrapped: [string, object, string][] = [
  ['found', Registry.prototype, 'find'],
  ['template', Tokenizer.prototype, 'renderChat'],
  ['tokenise', Tokenizer.prototype, 'encode'],
  ['submit', Sampler.prototype, 'submit'],
  ['weights', Engine.prototype, 'weightsNow'],
  ['slots', Admission.prototype, 'admit'],
  ['copy', KvCache.prototype, 'copyBlocks'],
  ['prompt', Engine.prototype, 'readPrompts'],
  ['replay', Graph.prototype, 'replay'],
  ['steps', Engine.prototype, 'step'],
  ['write', EventStream.prototype, 'send'],
];

/** Notes when the wrapped functions begin and end, until it is disposed. */
export class Stages {
  #spans: Span[] = [];
  readonly #restore: (() => void)[] = [];

  constructor() {
    const arrived = () => this.#note('arrived', clock());
    subscribe('http.server.request.start', arrived);
    this.#restore.push(() => unsubscribe('http.server.request.start', arrived));
    for (const [name, of, method] of wrapped) {
      const methods = of as Methods;
      const original = methods[method] as Methods[string];
      const note = (start: number) => this.#note(name, start);
      methods[method] = function (this: unknown, ...args: unknown[]) {
        const start = clock();
        const result = original.apply(this, args);
        note(start);
        return result;
      };
      this.#restore.push(() => {
        methods[method] = original;
      });
    }
  }

  #note(name: string, start: number): void {
    this.#spans.push({ name, start, end: clock() });
  }

  /** Forgets what was noted. */
  clear(): void {
    this.#spans = [];
  }

  /** The milliseconds of each stage of the request since then, from the client's sending to its first text. */
  take(sent: number, firstText: number): Record<string, number> {
    const spans = this.#spans;
    const first = (name: string) => spans.find((span) => span.name === name);
    const start = (name: string) => first(name)?.start ?? Number.NaN;
    const end = (name: string) => first(name)?.end ?? Number.NaN;
    const took = (name: string) => (first(name) === undefined ? 0 : end(name) - start(name));
    const prompt = first('prompt');
    const replay = spans.find(({ name, start }) => name === 'replay' && start < (prompt?.end ?? 0));
    // the first write is the role's; the second one brings text
    const written = spans.filter(({ name }) => name === 'write')[1]?.start ?? Number.NaN;
    const stepsFirst = start('steps') < written;
    return {
      total: firstText - sent,
      reachServer: start('arrived') - sent,
      readBody: start('found') - start('arrived'),
      template: took('template'),
      tokenise: took('tokenise'),
      submit: took('submit'),
      untilSlots: start('slots') - end('submit'),
      slots: took('slots') - took('copy'),
      copyPrefix: took('copy'),
      weights: took('weights'),
      prompt: took('prompt'),
      ofPromptUpload: replay === undefined ? 0 : replay.start - start('prompt'),
      ofPromptLaunch: replay === undefined ? 0 : replay.end - replay.start,
      ofPromptWait: replay === undefined ? 0 : end('prompt') - replay.end,
      startSteps: stepsFirst ? took('steps') : 0,
      untilWrite: written - (stepsFirst ? end('steps') : end('prompt')),
      reachClient: firstText - written,
    };
  }

  [Symbol.dispose](): void {
    for (const restore of this.#restore) restore();
  }
}
