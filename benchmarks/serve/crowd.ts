/** The clients' process of the serve benchmark, seen from the server's. */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import type { Load, LoadReading, Question, QuestionReading } from './requests.ts';

export class Crowd {
  readonly #child: ReturnType<typeof fork>;

  private constructor(child: ReturnType<typeof fork>) {
    this.#child = child;
  }

  static async start(): Promise<Crowd> {
    const child = fork(join(import.meta.dirname, `clients${import.meta.filename.slice(-3)}`));
    await once(child, 'spawn');
    return new Crowd(child);
  }

  /** Many clients at once. */
  run(load: Load): Promise<LoadReading> {
    return this.#send<LoadReading>({ load });
  }

  /** One request. */
  ask(question: Question): Promise<QuestionReading> {
    return this.#send<QuestionReading>({ question });
  }

  async #send<Result>(order: object): Promise<Result> {
    this.#child.send(order);
    const [reading] = (await once(this.#child, 'message')) as [Result];
    return reading;
  }

  end(): void {
    this.#child.disconnect();
  }
}
