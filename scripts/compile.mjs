/** `npm run build`: src/ to JavaScript with types in dist/, studio/ to the page there. Node does not strip types under node_modules, so a package needs it. */
import { spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, rmSync } from 'node:fs';
import { basename, join } from 'node:path';
import { packageRoot } from './native.mjs';
import { ensurePage, pageFolder } from './page.mjs';

/** Compiles a project file of the repository into a folder emptied of all but the page, which a studio may be serving. */
export function compile(project, folder) {
  const target = join(packageRoot, folder);
  mkdirSync(target, { recursive: true });
  for (const name of readdirSync(target))
    if (name !== basename(pageFolder)) rmSync(join(target, name), { recursive: true, force: true });
  const tsc = join(packageRoot, 'node_modules/typescript/lib/tsc.js');
  const result = spawnSync(process.execPath, [tsc, '-p', project, '--outDir', folder], {
    cwd: packageRoot,
    stdio: 'inherit',
  });
  if (result.status !== 0) throw new Error(`tsc -p ${project} found errors`);
}

if (import.meta.main) {
  try {
    compile('tsconfig.build.json', 'dist');
    await ensurePage();
  } catch (error) {
    console.error(error.message);
    process.exitCode = 1;
  }
}
