/**
 * Run by hostile.test.ts: two workers, one after the other, try to use the engine; with "taken", this thread already
 * uses it.
 */
import { isMainThread, parentPort, Worker } from 'node:worker_threads';

async function tryEngine(): Promise<number | string> {
  try {
    const { ones } = await import('./index.ts');
    return ones([2]).sum().item();
  } catch (error) {
    return (error as Error).message;
  }
}

function ask(): Promise<unknown> {
  return new Promise((resolve) => {
    let answer: unknown;
    new Worker(import.meta.filename)
      .on('message', (message) => {
        answer = message;
      })
      .on('exit', () => resolve(answer));
  });
}

if (!isMainThread) {
  parentPort?.postMessage(await tryEngine());
} else {
  const taken = process.argv[2] === 'taken';
  if (taken) await tryEngine();
  const workers = [await ask(), await ask()];
  console.log(JSON.stringify({ workers, own: await tryEngine() }));
}
