/** A Chromium of this machine, for tests and benchmarks in a browser. */
import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';

/** Its path; undefined where there is none. */
export function browserPath(): string | undefined {
  const names = ['chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable'];
  const folders = (process.env.PATH ?? '').split(delimiter);
  const candidates = [
    process.env.CHROME_PATH ?? '',
    ...folders.flatMap((folder) => names.map((name) => join(folder, name))),
    '/Applications/Google Chrome.app/Contents/MacOS/Google Chrome',
  ];
  return candidates.find((path) => path !== '' && isProgram(path));
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
