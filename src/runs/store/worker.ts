/** The thread that writes `rollouts.db`, one database after another; see rollouts.ts. */
import { parentPort } from 'node:worker_threads';
import type { RolloutReply, RolloutRequest } from './schema.ts';
import { openWriter, type RolloutWriter } from './writer.ts';

let writer: RolloutWriter | undefined;

parentPort?.on('message', (request: RolloutRequest) => {
  const reply: RolloutReply = { number: request.number };
  try {
    if (request.kind === 'open') writer = openWriter(request.path, request.resumedAt);
    else if (writer === undefined) throw new Error('no database is open');
    else if (request.kind === 'rows') writer.add(request.rollouts ?? [], request.evalRollouts ?? []);
    else if (request.kind === 'flush') writer.flush();
    else {
      const closing = writer;
      writer = undefined;
      closing.close();
    }
  } catch (error) {
    reply.error = (error as Error).message;
  }
  parentPort?.postMessage(reply);
});
