/**
 * The Modelfile for `ollama create NAME -f Modelfile`. Ollama's templates are Go's, not Jinja: a chat template that only puts
 * fixed text around each turn is converted. For any other, Ollama falls back on its own template for the models it knows.
 */
import { existsSync, readFileSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { UserError } from '../../../errors.ts';
import type { Message } from '../../../text/chat/chat.ts';
import type { Tokenizer } from '../../../text/tokenizer/tokenizer.ts';

/**
 * The path of a GGUF file's Modelfile: `Modelfile` beside it, or `<name>.Modelfile` if that one belongs to another
 * model.
 */
export function modelfilePath(gguf: string): string {
  const folder = dirname(gguf);
  const plain = join(folder, 'Modelfile');
  if (!existsSync(plain)) return plain;
  const [, from = ''] = /^FROM[ \t]+(.*\S)/im.exec(readFileSync(plain, 'utf8')) ?? [];
  return resolve(folder, from) === resolve(gguf) ? plain : gguf.replace(/\.gguf$/, '.Modelfile');
}

/** The text of the Modelfile `path` for the GGUF file beside it. */
export function modelfile(path: string, ggufName: string, tokenizer: Tokenizer, addsBos: boolean): string {
  const stops = tokenizer.eosIds.map((id) => tokenizer.token(id) as string);
  const template = ollamaTemplate(tokenizer, addsBos);
  const lines = [
    `# ollama create my-model -f ${basename(path)}`,
    `FROM ./${ggufName}`,
    ...(tokenizer.chatTemplate === undefined
      ? []
      : template === null
        ? ['# The chat template is in the GGUF file; Ollama uses its own where it knows the model.']
        : [`TEMPLATE """${template}"""`]),
    ...stops.map((token) => `PARAMETER stop ${JSON.stringify(token)}`),
  ];
  return `${lines.join('\n')}\n`;
}

interface Frame {
  before: string;
  after: string;
}

/** The chat template in Go; null if it does more than put fixed text around each turn. */
export function ollamaTemplate(tokenizer: Tokenizer, addsBos: boolean): string | null {
  if (tokenizer.chatTemplate === undefined) return null;
  const frames = framesOf(tokenizer);
  if (frames === null || !frames.holds) return null;
  const start = addsBos && frames.start === tokenizer.token(tokenizer.bosId as number) ? '' : frames.start;
  const turns = Object.entries(frames.turns).map(
    ([role, { before, after }], i) =>
      `{{ ${i === 0 ? 'if' : 'else if'} eq .Role "${role}" }}${before}{{ .Content }}${after}`,
  );
  const text = `${start}{{ range .Messages }}${turns.join('')}{{ end }}{{ end }}${frames.opening}`;
  const own = [start, frames.opening, ...Object.values(frames.turns).flatMap(({ before, after }) => [before, after])];
  return own.some((part) => /\{\{|\}\}|"""/.test(part)) ? null : text;
}

interface Frames {
  start: string;
  turns: Record<'system' | 'user' | 'assistant', Frame>;
  opening: string;
  /** Whether text made from the frames equals what the template renders. */
  holds: boolean;
}

const say = (role: Message['role'], content: string): Message => ({ role, content });

/** The text around each role's message, found by rendering chats with marker words. */
function framesOf(tokenizer: Tokenizer): Frames | null {
  try {
    const render = (messages: Message[], addGenerationPrompt = false) =>
      tokenizer.renderChat(messages, { addGenerationPrompt });
    const [s, u, a, v] = ['<SYSTEM-WORDS>', '<USER-WORDS>', '<ASSISTANT-WORDS>', '<MORE-WORDS>'];
    const dialogue = render([say('user', u), say('assistant', a), say('user', v)]);
    const [head = '', afterUser = '', afterAssistant = '', userEnd = ''] = dialogue.split(new RegExp(`${u}|${a}|${v}`));
    const common = commonEnd(head, afterAssistant);
    const start = head.slice(0, head.length - common.length);
    const user = { before: common, after: userEnd };
    const assistant = {
      before: afterUser.slice(userEnd.length),
      after: afterAssistant.slice(0, afterAssistant.length - common.length),
    };
    const [systemHead = '', systemEnd = ''] = render([say('system', s), say('user', u)]).split(new RegExp(`${s}|${u}`));
    const system = {
      before: systemHead.slice(start.length),
      after: systemEnd.slice(0, systemEnd.length - common.length),
    };
    const opened = render([say('user', u)], true);
    const opening = opened.slice(`${start}${common}${u}${userEnd}`.length);
    const whole = render([say('system', s), say('user', u), say('assistant', a), say('user', v)], true);
    const around = ({ before, after }: Frame, words: string) => `${before}${words}${after}`;
    const put = `${start}${around(system, s)}${around(user, u)}${around(assistant, a)}${around(user, v)}${opening}`;
    return { start, turns: { system, user, assistant }, opening, holds: put === whole };
  } catch (error) {
    if (error instanceof UserError) return null; // the template refuses such a chat
    throw error;
  }
}

/** The longest common suffix of the two. */
function commonEnd(a: string, b: string): string {
  let length = 0;
  while (length < Math.min(a.length, b.length) && a.at(-1 - length) === b.at(-1 - length)) length++;
  return a.slice(a.length - length);
}
