/**
 * How a browser is let in: a URL with a one-time token, exchanged for a cookie. The token appears in a terminal, in a
 * browser's history and perhaps in a log, so it works once; the cookie is HttpOnly, SameSite=Strict and lives in this
 * process's memory only.
 *
 *     const keys = new Keys(7860);
 *     const cookie = keys.exchange(keys.newToken());      // undefined where the token was used before
 *     keys.knows(request.headers.cookie);
 */
import { randomBytes, timingSafeEqual } from 'node:crypto';

/** Browsers that may be let in at the same time; the oldest is forgotten. */
const mostSessions = 64;
/** Tokens that may wait to be used. */
const mostTokens = 16;

export class Keys {
  /** Cookies are shared by all ports of a host: each studio names its own. */
  readonly #name: string;
  readonly #tokens = new Set<string>();
  readonly #sessions = new Set<string>();
  /** A token that the user chose for a server that others can reach; it may be used by each of their browsers. */
  readonly #standing: string | undefined;

  constructor(port: number, standing?: string) {
    this.#name = `attune_studio_${port}`;
    this.#standing = standing;
  }

  newToken(): string {
    const token = randomBytes(24).toString('base64url');
    keep(this.#tokens, token, mostTokens);
    return token;
  }

  /** The Set-Cookie value for a token; undefined where it is unknown or was used before. */
  exchange(token: string): string | undefined {
    const isStanding = this.#standing !== undefined && equal(token, this.#standing);
    if (!isStanding && !this.#tokens.delete(token)) return undefined;
    const session = randomBytes(32).toString('base64url');
    keep(this.#sessions, session, mostSessions);
    return `${this.#name}=${session}; HttpOnly; SameSite=Strict; Path=/`;
  }

  /** Whether a Cookie header has the cookie of a browser that was let in. */
  knows(header: string | undefined): boolean {
    const cookies = (header ?? '').split(';').map((part) => part.trim());
    return cookies.some((cookie) => {
      const [name, value = ''] = cookie.split('=', 2) as [string, string?];
      return name === this.#name && this.#sessions.has(value);
    });
  }
}

function keep(set: Set<string>, value: string, most: number): void {
  set.add(value);
  for (const oldest of set) {
    if (set.size <= most) return;
    set.delete(oldest);
  }
}

function equal(given: string, wanted: string): boolean {
  const [a, b] = [Buffer.from(given), Buffer.from(wanted)];
  return a.length === b.length && timingSafeEqual(a, b);
}
