/** The slash commands of a chat. */
import { nearest, UserError } from '../../errors.ts';
import type { ChatSettings } from './conversation.ts';

export const chatCommands: Readonly<Record<string, string>> = {
  '/system TEXT': 'sets the system message; without TEXT, shows it',
  '/temperature N': '0 (always the likeliest token) to 1.5',
  '/max-tokens N': 'maximum tokens of a response, 64 to 2048',
  '/seed N': 'the same seed and conversation give the same response',
  '/retry': 'another response to the last question',
  '/clear': 'begin anew',
  '/save FILE': 'write the conversation to a file',
  '/load FILE': 'go on with one',
  '/score': "the reward model's score of the last response",
  '/results': 'the tally of votes (two models)',
  '/help': 'this list',
  '/exit': 'leave',
};

const names = Object.keys(chatCommands).map((usage) => usage.split(' ')[0] as string);

/** Whether a line is a command, known or not. */
export const isCommand = (line: string): boolean => line.startsWith('/') && !line.startsWith('//');

/** The command and its argument; undefined where the line is a message. A message may begin with a slash as "//". */
export function parseCommand(line: string): { name: string; rest: string } | undefined {
  if (!isCommand(line)) return undefined;
  const [, name = '', rest = ''] = /^(\/\S*)\s*([\s\S]*)$/.exec(line) ?? [];
  const known =
    { '/max_tokens': '/max-tokens', '/temp': '/temperature', '/quit': '/exit', '/q': '/exit' }[name] ?? name;
  if (names.includes(known)) return { name: known, rest: rest.trim() };
  const near = nearest(known, names);
  throw new UserError(
    `There is no ${known}.${near === undefined ? '' : ` Did you mean ${near}?`} The commands are ${names.join(', ')}; a message that begins with a slash is written //.`,
  );
}

/** Changes a setting; returns its new value as text. */
export function changeSetting(settings: ChatSettings, name: string, rest: string): string {
  if (name === '/system') {
    if (rest !== '') settings.system = rest === '""' ? '' : rest;
    return `system: ${settings.system === undefined || settings.system === '' ? '(nothing)' : settings.system}`;
  }
  if (name === '/temperature') {
    if (rest !== '') settings.temperature = numberIn(rest, name, 0, 1.5);
    return `temperature: ${settings.temperature}`;
  }
  if (name === '/max-tokens') {
    if (rest !== '') settings.maxTokens = Math.round(numberIn(rest, name, 64, 2048));
    return `max tokens: ${settings.maxTokens}`;
  }
  if (rest !== '') settings.seed = Math.round(numberIn(rest, name, 0, 2 ** 31 - 1));
  return `seed: ${settings.seed}`;
}

function numberIn(text: string, name: string, low: number, high: number): number {
  const value = Number(text);
  if (text === '' || !(value >= low && value <= high))
    throw new UserError(`${name} takes a number from ${low} to ${high}, not "${text}".`);
  return value;
}
