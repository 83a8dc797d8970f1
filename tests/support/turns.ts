/** A short game for policies that have learnt nothing, and a model that often ends its turn. */
import { defineEnvironment } from '../../src/environments/index.ts';
import { type TinyOptions, tinyModel } from './tiny-model.ts';

/** A response is even by its last character; two even ones of difficulty + 1 turns solve it. */
export const evenTurns = defineEnvironment({
  name: 'even_turns',
  levels: 2,
  parts: ['even', 'solved'],
  start({ random, difficulty }) {
    let found = 0;
    return {
      messages: `red ${random.int(0, 1e6)}`,
      step(response, { turn }) {
        const even = isEven(response);
        found += Number(even);
        const done = turn > difficulty || found === 2;
        return {
          ...{ observation: even ? 'yes blue' : 'no', parts: { even: Number(even), solved: Number(found === 2) } },
          ...(done && { done, success: found === 2 }),
        };
      },
    };
  },
  demonstrate: () => ['2', '2'],
});

export const isEven = (response: string) => (response.codePointAt(response.length - 1) ?? 1) % 2 === 0;

/** A tiny random model of which every fifth token ends a turn. */
export const turnsModel = (folder: string, options: TinyOptions = {}): Promise<string> =>
  tinyModel(folder, {
    ...options,
    config: { eos_token_id: Array.from({ length: 58 }, (_, i) => 5 * i + 4), ...options.config },
  });
