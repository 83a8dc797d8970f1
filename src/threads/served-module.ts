/** Inside the thread of a user's module: loads it, and answers calls; see module-thread.ts. */
import { readFileSync } from 'node:fs';
import { stripTypeScriptTypes } from 'node:module';
import { pathToFileURL } from 'node:url';
import { parentPort, workerData } from 'node:worker_threads';
import { messageOf, type ThreadReply, type ThreadRequest } from './messages.ts';

const { file } = workerData as { file: string };
const reply = (message: ThreadReply) => parentPort?.postMessage(message);

/** What the module exports, by name; undefined, and said, where it cannot be loaded. */
export async function loadedModule(): Promise<Record<string, unknown> | undefined> {
  try {
    return (await import(pathToFileURL(file).href)) as Record<string, unknown>;
  } catch (error) {
    refuse(`cannot be loaded: ${loadFault(error)}`);
    return undefined;
  }
}

/** Says why the module cannot be used. */
export const refuse = (message: string): void => reply({ kind: 'unusable', message });

/** The names of what a module exports, for messages. */
export const exported = (module: object): string => Object.keys(module).join(', ') || 'nothing';

/** Answers calls from now on. `faultOf` says what an error means to the caller. */
export function serve<Request>(
  answer: (request: Request, signal: AbortSignal) => unknown,
  faultOf: (error: unknown) => string,
): void {
  const running = new Map<number, AbortController>();
  const respond = async (number: number, request: Request) => {
    const controller = new AbortController();
    running.set(number, controller);
    reply({ kind: 'begun', number });
    try {
      reply({ kind: 'done', number, value: await answer(request, controller.signal) });
    } catch (error) {
      reply({ kind: 'failed', number, message: messageOf(error), fault: faultOf(error) });
    } finally {
      running.delete(number);
    }
  };
  parentPort?.on('message', (message: ThreadRequest) => {
    if (message.kind === 'call') void respond(message.number, message.request as Request);
    else if (message.kind === 'abort') running.get(message.number)?.abort();
    else reply({ kind: 'alive' });
  });
  reply({ kind: 'ready' });
}

/** Node only strips types. TypeScript that needs generated code (enums, decorators) is refused with an explanation. */
function loadFault(error: unknown): string {
  const { code } = error as NodeJS.ErrnoException;
  const place = placeOf(error);
  const hint =
    code === 'ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX'
      ? '. Types are only stripped, so enums, namespaces and parameter properties cannot be used: write a constant object or a union type.'
      : '';
  return `${place === undefined ? '' : `${place}: `}${messageOf(error)}${hint}`;
}

/** `file:line`, from the head of a parser's stack or from its first frame that is not Node's. */
function placeOf(error: unknown): string | undefined {
  const stack = error instanceof Error ? (error.stack ?? '') : '';
  const head = /^(?:file:\/\/)?(\/\S+|[A-Z]:\\\S+):(\d+)\n/.exec(stack);
  if (head !== null) return `${head[1]}:${head[2]}`;
  // A JavaScript SyntaxError has no position; the type stripper parses JavaScript too and gives one.
  if (error instanceof SyntaxError && stack.length > 0) {
    try {
      stripTypeScriptTypes(readFileSync(file, 'utf8'), { sourceUrl: file });
    } catch (parsed) {
      const line = /:(\d+)\n/.exec((parsed as Error).stack ?? '')?.[1];
      if (line !== undefined) return `${file}:${line}`;
    }
  }
  const frame = /\((?:file:\/\/)?(\/[^)]+?):(\d+):\d+\)|at (?:file:\/\/)(\/\S+?):(\d+):\d+/.exec(stack);
  const path = frame?.[1] ?? frame?.[3];
  return path === undefined || path.startsWith('node:') ? undefined : `${path}:${frame?.[2] ?? frame?.[4]}`;
}
