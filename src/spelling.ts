/**
 * Messages name options as their reader spells them. The sources write `--batch-size`, as on a command line; a program wrote
 * `batchSize`, a file `batch_size`:
 *
 *     spelledFor('program', '--lora-r has no effect without --lora.')      // 'loraR has no effect without lora.'
 *     spelledFor('file', '--lora-r has no effect without --lora.')         // 'lora_r has no effect without lora.'
 *
 * Every error of attune goes through `spelled` (src/errors.ts), so no function has to know who called it.
 */
export type Reader = 'command line' | 'program' | 'file';

let reader: Reader = 'program';

/** Says who reads the messages of this process: a program, unless the command line began it. Returns who did until now. */
export function speakTo(who: Reader): Reader {
  const before = reader;
  reader = who;
  return before;
}

/** The text for this process's reader. */
export const spelled = (text: string): string => spelledFor(reader, text);

/** A whole command (`attune evaluate reward --suite x`) or an option. Options of a command are typed, whoever reads. */
const commandOrOption =
  /\battune(?: [\w<>/@:=-]+(?:\.[\w/]+)*)+|(?<![\w=-])--(no-)?([a-z][a-z0-9]*(?:[-.][a-z0-9]+)*)(?![\w=])/g;

/** `--no-lora` becomes `lora: false`. */
export function spelledFor(who: Reader, text: string): string {
  if (who === 'command line') return text;
  const ownCase = who === 'program' ? camelCase : snakeCase;
  return text.replace(commandOrOption, (typed, off: string | undefined, name: string | undefined) => {
    if (name === undefined) return typed;
    return off === undefined ? ownCase(name) : `${ownCase(name)}: false`;
  });
}

export function camelCase(name: string): string {
  return name.replace(/[-_]+([a-zA-Z0-9])/g, (_, letter: string) => letter.toUpperCase());
}

export function snakeCase(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`).replaceAll('-', '_');
}

export function kebabCase(name: string): string {
  return snakeCase(name).replaceAll('_', '-');
}

/** `1 step`, `2 steps`, `1,000 batches`. */
export const counted = (count: number, noun: string): string =>
  `${count.toLocaleString('en-US')} ${noun}${count === 1 ? '' : /[hs]$/.test(noun) ? 'es' : 's'}`;
