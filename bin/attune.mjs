#!/usr/bin/env node
/** The `attune` command: finds Node 24, then runs the command line from src/ (repository) or dist/ (installed package). */
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { modernNode, NO_NODE, runNode } from '../scripts/node24.mjs';

const here = fileURLToPath(import.meta.url);
const root = dirname(dirname(here));
const node = modernNode(root);

if (!node) {
  console.error(NO_NODE);
  process.exit(1);
} else if (node !== process.execPath) {
  process.exit(await runNode(node, [here, ...process.argv.slice(2)]));
}

// dist/ may be stale in the repository, where the sources run as they are.
const source = join(root, 'src/cli/main.ts');
const { main } = await import(pathToFileURL(existsSync(source) ? source : join(root, 'dist/cli/main.js')).href);
process.exitCode = await main(process.argv.slice(2), {
  version: JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')).version,
  prepareEngine: async (log) => (await import('../scripts/native.mjs')).ensureAddon({ log }),
});
