/**
 * Builds the studio's page from studio/ into dist/studio-page/, and only when its sources have changed. An installed
 * package and the bundle bring the page built.
 *
 *     node scripts/page.mjs                    builds
 *     await ensurePage({ around });            the same from a program
 */
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { BuildError, packageRoot } from './native.mjs';

/** Where the page lies, from the root of a clone, of the package and of the bundle's app/. */
export const pageFolder = 'dist/studio-page';

/**
 * @param {object} [options]
 * @param {(work: () => Promise<void>) => Promise<void>} [options.around] wraps a build that has to be done
 * @param {string} [options.root] the folder of the clone
 */
export async function ensurePage({ around = (work) => work(), root = packageRoot } = {}) {
  const folder = join(root, pageFolder);
  const sources = join(root, 'studio');
  if (!existsSync(sources)) return folder;
  const wanted = fingerprint(root, sources);
  const stamp = join(folder, 'fingerprint');
  if (existsSync(stamp) && readFileSync(stamp, 'utf8') === wanted) return folder;
  await around(() => build(root, folder, wanted));
  return folder;
}

/** Builds beside the folder and renames, so that two builds at once do not mix and a server never sees half a page. */
async function build(root, folder, wanted) {
  const fresh = `${folder}.${process.pid}`;
  mkdirSync(fresh, { recursive: true });
  try {
    await vite(root, fresh);
    writeFileSync(join(fresh, 'fingerprint'), wanted);
    rmSync(folder, { recursive: true, force: true });
    renameSync(fresh, folder);
  } finally {
    rmSync(fresh, { recursive: true, force: true });
  }
}

function vite(root, folder) {
  const command = [join(root, 'node_modules/vite/bin/vite.js'), 'build', join(root, 'studio'), '--outDir', folder];
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, command, { cwd: root, stdio: ['ignore', 'pipe', 'pipe'] });
    let output = '';
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding('utf8').on('data', (text) => {
        output += text;
      });
    child.on('error', (error) => reject(new BuildError(`the studio's page could not be built: ${error.message}`)));
    child.on('close', (status) =>
      status === 0 ? resolve() : reject(new BuildError(`the studio's page could not be built:\n${output.trimEnd()}`)),
    );
  });
}

/** The page's sources, what they share with the plots, and the packages' versions. */
function fingerprint(root, sources) {
  const hash = createHash('sha256');
  const own = readdirSync(sources, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && !/\.test\.tsx?$/.test(entry.name))
    .map((entry) => join(entry.parentPath, entry.name));
  for (const path of [...own.sort(), join(root, 'src/runs/plots/tokens.ts'), join(root, 'package-lock.json')])
    hash.update(path.slice(root.length)).update('\0').update(readFileSync(path)).update('\0');
  return hash.digest('hex').slice(0, 16);
}

if (import.meta.main) await ensurePage();
