/**
 * The built page. Its files are listed once at the start: a request is looked up in that list and never becomes a path,
 * so nothing outside of the list can be read. Without a built page there is a page that says how to build it.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import type { ServerResponse } from 'node:http';
import { extname, join, relative, sep } from 'node:path';
import { plainHeaders } from '../../serve/http.ts';
import { pageHeaders } from './headers.ts';

const types: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
  '.png': 'image/png',
  '.ico': 'image/x-icon',
  '.json': 'application/json',
  '.webmanifest': 'application/manifest+json',
};

interface Asset {
  bytes: Buffer;
  type: string;
  /** Its name holds a hash of its content, so that it never changes. */
  hashed: boolean;
}

export class Assets {
  readonly #files = new Map<string, Asset>();

  /** `folder` holds index.html and assets/. */
  constructor(folder: string | undefined) {
    if (folder === undefined || !existsSync(join(folder, 'index.html'))) return;
    for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
      const type = types[extname(entry.name)];
      if (!entry.isFile() || type === undefined) continue;
      const path = join(entry.parentPath, entry.name);
      const name = `/${relative(folder, path).split(sep).join('/')}`;
      this.#files.set(name, { bytes: readFileSync(path), type, hashed: name.startsWith('/assets/') });
    }
  }

  get built(): boolean {
    return this.#files.has('/index.html');
  }

  /** Answers with an asset; false where there is none of this name. */
  send(path: string, response: ServerResponse): boolean {
    if (path === '/' && !this.built) {
      sendPage(response, 200, 'The studio’s page is not built', 'Build it with "npm run build", then reload.');
      return true;
    }
    const found = this.#files.get(path === '/' ? '/index.html' : path);
    if (found === undefined) return false;
    response.writeHead(200, {
      ...plainHeaders,
      ...pageHeaders,
      'Content-Type': found.type,
      'Content-Length': found.bytes.length,
      ...(found.hashed ? { 'Cache-Control': 'private, max-age=31536000, immutable' } : {}),
    });
    response.end(found.bytes);
    return true;
  }
}

/** A page of our own words: a title and a sentence, nothing from outside. */
export function sendPage(
  response: ServerResponse,
  status: number,
  title: string,
  text: string,
  headers: Readonly<Record<string, string>> = {},
): void {
  const next = headers['Set-Cookie'] === undefined ? '' : '<meta http-equiv="refresh" content="0; url=/">';
  response.writeHead(status, {
    ...plainHeaders,
    ...pageHeaders,
    'Content-Type': 'text/html; charset=utf-8',
    ...headers,
  });
  response.end(
    // An icon of nothing: a browser would ask for /favicon.ico.
    `<!doctype html><html lang="en"><head><meta charset="utf-8"><link rel="icon" href="data:,">${next}` +
      `<title>${title}</title></head>` +
      `<body><h1>${title}</h1><p>${text}</p></body></html>\n`,
  );
}
