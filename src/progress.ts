/**
 * One piece of long work under way. The library reports to it; how it is shown is up to whoever made the `Progress`.
 *
 *     const bar = progress?.start('tokenising', rows.length);
 *     for (...) bar?.advance(1, { loss });
 *     bar?.done();
 */
export interface ProgressTask {
  advance(amount?: number, values?: Record<string, number | string>): void;
  done(message?: string): void;
}

/** Receives the progress of long work: the command line draws bars, a program may pass its own. */
export interface Progress {
  /**
   * `total` is left out where it is unknown; `unit` names what is counted ("tokens", "bytes", "steps"); `before` is how much
   * of the total an earlier, resumed run has done.
   */
  start(label: string, total?: number, unit?: string, before?: number): ProgressTask;
}
