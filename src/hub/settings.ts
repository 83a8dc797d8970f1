/**
 * The hub's address, token and cache folder, from the environment variables of Python's huggingface_hub, so that both share
 * one cache and one login.
 */
import { readFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { UserError } from '../errors.ts';
import type { Progress } from '../progress.ts';

export interface HubOptions {
  /** Instead of HF_ENDPOINT. */
  endpoint?: string;
  /** Instead of HF_TOKEN. */
  token?: string;
  /** Instead of HF_HUB_CACHE. */
  cacheDir?: string;
  /** Instead of HF_HUB_OFFLINE. */
  offline?: boolean;
  /** How long to wait for the server before a request is abandoned and retried. */
  timeoutMs?: number;
  /** How often a failed request is retried; a download that makes progress resets the count. */
  retries?: number;
  /** The first pause between retries; it doubles each time. */
  backoffMs?: number;
  signal?: AbortSignal;
  /** Shows downloads and retries. */
  progress?: Progress;
  env?: Record<string, string | undefined>;
}

export interface HubSettings {
  endpoint: string;
  token?: string;
  cacheDir: string;
  offline: boolean;
  timeoutMs: number;
  retries: number;
  backoffMs: number;
  signal?: AbortSignal;
  progress?: Progress;
}

export async function hubSettings(options: HubOptions = {}): Promise<HubSettings> {
  const env = options.env ?? process.env;
  // An empty variable counts as unset (XDG's rule, and what compose files pass on).
  const home = env.HF_HOME || join(env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'huggingface');
  return {
    endpoint: checkedEndpoint(options.endpoint ?? (env.HF_ENDPOINT || 'https://huggingface.co')),
    token: checkedToken(options.token ?? (env.HF_TOKEN || env.HUGGINGFACE_TOKEN || (await savedToken(home, env)))),
    cacheDir: options.cacheDir ?? (env.HF_HUB_CACHE || env.HUGGINGFACE_HUB_CACHE || join(home, 'hub')),
    offline: options.offline ?? [env.HF_HUB_OFFLINE, env.TRANSFORMERS_OFFLINE].some(isOn),
    timeoutMs: options.timeoutMs ?? 30_000,
    retries: options.retries ?? 5,
    backoffMs: options.backoffMs ?? 1000,
    signal: options.signal,
    progress: options.progress,
  };
}

/** The token that `hf auth login` saved. */
async function savedToken(home: string, env: Record<string, string | undefined>): Promise<string | undefined> {
  try {
    return await readFile(env.HF_TOKEN_PATH || join(home, 'token'), 'utf8');
  } catch {
    return undefined;
  }
}

function checkedEndpoint(value: string): string {
  const url = URL.canParse(value) ? new URL(value) : undefined;
  if (url === undefined || !['http:', 'https:'].includes(url.protocol)) {
    throw new UserError('HF_ENDPOINT is not an http(s) address. Example: https://huggingface.co');
  }
  if (url.username !== '' || url.password !== '') {
    throw new UserError('HF_ENDPOINT must not hold a user name or password; use HF_TOKEN.');
  }
  return value.replace(/\/+$/, '');
}

/** Refuses a token that cannot be sent in a header: fetch's own error would print it whole. */
function checkedToken(value: string | undefined): string | undefined {
  const token = value?.trim();
  if (token === undefined || token === '') return undefined;
  if (!/^[\x21-\x7e]+$/.test(token)) {
    throw new UserError(
      "HF_TOKEN holds spaces or characters that a token cannot have. Copy it again from the hub's settings.",
    );
  }
  return token;
}

function isOn(value: string | undefined): boolean {
  return value !== undefined && ['1', 'true', 'yes', 'on'].includes(value.toLowerCase());
}
