/**
 * After `npm install attune`: builds the addon against the libtorch that is here. Without one, or without a compiler, it
 * says so and lets the installation succeed: the `attune` command builds the addon on its first use.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { ensureAddon, packageRoot } from './native.mjs';

// In the repository itself scripts/start.mjs does this, with more help.
if (!existsSync(join(packageRoot, 'src'))) {
  try {
    await ensureAddon({ log: (line) => console.log(`attune: ${line}`) });
  } catch (error) {
    console.warn(
      `attune: the addon was not built: ${error.message}\nattune: once that is mended, \`npx attune doctor\` builds it.`,
    );
  }
}
