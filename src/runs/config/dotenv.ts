/**
 * Reads `.env` in the working folder: credentials and switches (HF_TOKEN, WANDB_API_KEY, WANDB_PROJECT, WANDB_MODE).
 * Variables that are already set win. A `.env` may come with somebody else's project, so it must not decide where
 * credentials are sent (HF_ENDPOINT, proxies) or which code runs (ATTUNE_ADDON, LD_PRELOAD). Such names are ignored.
 *
 *     loadDotenv();                                  // ./.env, if it exists
 */
import { readFileSync } from 'node:fs';
import { parseEnv } from 'node:util';
import { UserError } from '../../errors.ts';

/** Synonyms, of which attune reads the first. */
const synonyms = [['HF_TOKEN', 'HUGGINGFACE_TOKEN', 'HUGGING_FACE_HUB_TOKEN']] as const;

const notFromFile =
  /^(hf_endpoint|wandb_base_url|wandb_host|path|cxx|.*_proxy|(attune|node|npm|ld|dyld|python|openblas|omp|ssl)_.*)$/i;

/** Adds a `.env` file's variables to the environment. Returns the names added. */
export function loadDotenv(
  path = '.env',
  environment: NodeJS.ProcessEnv = process.env,
  onRefused?: (name: string) => void,
): string[] {
  const added: string[] = [];
  const text = readIfPresent(path);
  if (text !== undefined) {
    for (const [name, value] of Object.entries(parseEnv(text))) {
      if (environment[name] !== undefined || value === undefined) continue;
      if (notFromFile.test(name)) {
        onRefused?.(name);
        continue;
      }
      environment[name] = value;
      added.push(name);
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
