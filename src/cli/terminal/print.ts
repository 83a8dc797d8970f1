/**
 * Everything that the command line prints goes through here. Prompts, responses, datasets, the hub and file names are
 * untrusted: an escape sequence in them can recolour or overwrite lines, set the title, or write to the clipboard (OSC
 * 52). Control characters are made visible instead.
 *
 *     print(response);                    // a line of a command's result, on standard output
 *     tell('step 12: not finite');        // a line about the work, on standard error
 */

/** A progress line that redraws itself in place: lines of text are written above it. */
export interface LiveLine {
  erase(): void;
  draw(): void;
}

const liveLines = new Set<LiveLine>();

export function showLive(line: LiveLine): void {
  liveLines.add(line);
}

export function hideLive(line: LiveLine): void {
  liveLines.delete(line);
}

const listeners = new Set<(text: string) => void>();

/** Calls the listener with every line printed to either output, until the returned function is called. */
export function onLine(listener: (text: string) => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function print(text = ''): void {
  const shown = visible(text);
  above(() => process.stdout.write(`${shown}\n`));
  for (const listener of listeners) listener(shown);
}

export function tell(text: string): void {
  const shown = visible(text);
  above(() => process.stderr.write(`${shown}\n`));
  for (const listener of listeners) listener(shown);
}

/** A part of a line, for text that arrives in pieces. */
export function printPart(text: string): void {
  process.stdout.write(visible(text));
}

/** Prints JSON with control characters as escapes; a reader gets the same value. */
export function printJson(value: unknown, indent?: number): void {
  above(() => process.stdout.write(`${jsonLine(value, indent)}\n`));
}

export function jsonLine(value: unknown, indent?: number): string {
  // JSON.stringify escapes characters below U+0020, but not DEL and U+0080 to U+009F.
  return JSON.stringify(value, null, indent).replace(/(?!\n)\p{Cc}/gu, escaped);
}

function above(write: () => void): void {
  for (const line of liveLines) line.erase();
  write();
  for (const line of liveLines) line.draw();
}

/**
 * Text without control characters: those below U+0020 become their pictures (␛ for escape), the rest `\u009b`. Line
 * feeds and tabs stay; a carriage return stays only before a line feed, since alone it overwrites the line.
 */
export function visible(text: string): string {
  return text.replace(/\r(?!\n)|(?![\r\n\t])\p{Cc}/gu, (control) =>
    control < ' ' ? String.fromCodePoint(0x2400 + control.charCodeAt(0)) : escaped(control),
  );
}

const escaped = (control: string) => `\\u${control.charCodeAt(0).toString(16).padStart(4, '0')}`;
