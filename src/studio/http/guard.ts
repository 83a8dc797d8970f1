/**
 * Who may ask what. Every request passes the rules below in this order, streams and assets included; each rule is a
 * function of its own, so that a test can take it out and see the attack succeed.
 *
 * - host: a page elsewhere whose name points to 127.0.0.1 (DNS rebinding) has its own Host.
 * - origin: a page elsewhere that calls this server has its own Origin, or says so in Sec-Fetch-Site.
 * - cookie: only browsers that came with the one-time token.
 * - header: a mutation has a header that a form or an image elsewhere cannot send.
 * - readOnly: with --read-only nothing changes.
 */
import type { IncomingMessage } from 'node:http';
import { hostname, networkInterfaces } from 'node:os';
import { ApiError } from '../../serve/api-error.ts';
import { isLoopback, loopbackHosts } from '../../serve/http.ts';
import type { Keys } from './keys.ts';

export interface Rules {
  hosts: ReadonlySet<string>;
  keys: Keys;
  readOnly: boolean;
}

/** Throws where a request breaks the rule. */
export type Rule = (request: IncomingMessage, rules: Rules) => void;

export const mutationHeader = 'x-attune-studio';

/** POSTs that change nothing on disk and start nothing that outlives them. */
const harmlessPosts = [
  /^\/api\/compare$/,
  /^\/api\/runs\/\w+\/whatif$/,
  /^\/api\/train\/\w+\/check$/,
  /^\/api\/data\/explore$/,
  /^\/api\/chat\/(send|stop)$/,
];

export const host: Rule = ({ headers }, { hosts }) => {
  const given = headers.host ?? '';
  if (!hosts.has(given.toLowerCase()))
    throw new ApiError(403, `This studio does not answer to the host "${given.slice(0, 100)}".`, { code: 'host' });
};

export const origin: Rule = (request) => {
  const { origin: given, host: own = '', 'sec-fetch-site': site = 'none', 'sec-fetch-mode': mode } = request.headers;
  const refused = () => new ApiError(403, 'Requests of web pages from elsewhere are refused.', { code: 'origin' });
  if (given !== undefined && given !== `http://${own}`) throw refused();
  // A link from elsewhere may open the page, which needs the cookie or a token; nothing else may be asked from elsewhere.
  const opensPage = mode === 'navigate' && request.method === 'GET' && pathOf(request) === '/';
  if (site !== 'none' && site !== 'same-origin' && !opensPage) throw refused();
};

export const cookie: Rule = (request, { keys }) => {
  if (!keys.knows(request.headers.cookie))
    throw new ApiError(401, 'Open the studio by the address that its terminal shows.', { code: 'cookie' });
};

export const header: Rule = (request) => {
  if (request.method !== 'GET' && request.headers[mutationHeader] !== '1')
    throw new ApiError(403, `Changes need the header ${mutationHeader}: 1.`, { code: 'header' });
};

export const readOnly: Rule = (request, rules) => {
  if (!rules.readOnly || request.method === 'GET') return;
  const path = pathOf(request);
  if (harmlessPosts.some((harmless) => harmless.test(path))) return;
  throw new ApiError(403, 'This studio was started with --read-only: nothing is changed from here.', {
    code: 'read_only',
  });
};

export const allRules: Readonly<Record<string, Rule>> = { host, origin, cookie, header, readOnly };

export const pathOf = (request: IncomingMessage) => (request.url ?? '/').split('?', 1)[0] as string;

/** Exact values of the Host header that a server on this address answers to. */
export function hostsOf(address: string, port: number, more: readonly string[] = []): ReadonlySet<string> {
  const own = loopbackHosts(port);
  if (isLoopback(address)) return own;
  const addresses = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
  const everywhere = address === '0.0.0.0' || address === '::';
  const names = [
    ...(everywhere ? [hostname(), ...addresses.map((each) => bracketed(each.address))] : [bracketed(address)]),
    ...more,
  ];
  return new Set([...own, ...names.map((name) => `${name.toLowerCase()}${port === 80 ? '' : `:${port}`}`)]);
}

const bracketed = (address: string) => (address.includes(':') ? `[${address}]` : address);
