#!/usr/bin/env node
/** The `attune` command: finds Node 24, then runs the command line. */
import { existsSync, readFileSync } from 'node:fs';
import module from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { cacheFolder } from '../scripts/libtorch.mjs';
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

// Half of what a start takes; NODE_COMPILE_CACHE names another folder.
if (existsSync(cacheFolder())) module.enableCompileCache(join(cacheFolder(), 'compiled'));

// The repository runs its sources as they are (its dist/ may be stale), an installed package dist/, the bundle src/*.js.
const entry = ['src/cli/main.ts', 'dist/cli/main.js', 'src/cli/main.js']
  .map((path) => join(root, path))
  .find((path) => existsSync(path));
const { main } = await import(pathToFileURL(entry).href);
process.exitCode = await main(process.argv.slice(2), {
  version: JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')).version,
  prepareEngine: async (log) => (await import('../scripts/native.mjs')).ensureAddon({ log }),
});
