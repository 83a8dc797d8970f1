/**
 * `.env` beside the user's work: credentials and switches (HF_TOKEN, WANDB_API_KEY, WANDB_PROJECT, WANDB_MODE). What the
 * environment already holds wins.
 *
 *     loadDotenv();                                  // ./.env, quietly nothing when there is none
 */
import { readFileSync } from 'node:fs';
import { parseEnv } from 'node:util';
import { UserError } from '../../errors.ts';

/** Names that mean the same; the first is the one the product reads. */
const synonyms = [['HF_TOKEN', 'HUGGINGFACE_TOKEN', 'HUGGING_FACE_HUB_TOKEN']] as const;

/** Adds a `.env` file's variables to the environment; returns the names that were added. */
export function loadDotenv(path = '.env', environment: NodeJS.ProcessEnv = process.env): string[] {
  const added: string[] = [];
  const text = readIfPresent(path);
  if (text !== undefined) {
    for (const [name, value] of Object.entries(parseEnv(text))) {
      if (environment[name] === undefined && value !== undefined) {
        environment[name] = value;
        added.push(name);
      }
    }
  }
  for (const [name, ...others] of synonyms) {
    const other = others.find((candidate) => environment[candidate]);
    if (!environment[name] && other) environment[name] = environment[other];
  }
  return added;
}

function readIfPresent(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === 'ENOENT' || code === 'EISDIR' || code === 'ENOTDIR') return undefined;
    throw new UserError(`Cannot read ${path}: ${(error as Error).message}`);
  }
}
