/**
 * What long work reports, and nothing about how it is shown: the library calls a `Progress`, the command line draws it.
 *
 *     const bar = progress?.start('tokenising', rows.length);
 *     for (...) bar?.advance(1, { loss });
 *     bar?.done();
 */
export interface ProgressTask {
  advance(amount?: number, values?: Record<string, number | string>): void;
  done(message?: string): void;
}

export interface Progress {
  /**
   * `total` is left out where it is unknown; `unit` names what is counted ("tokens", "bytes", "steps"); `before` is the part
   * of the total that was done earlier, by a run that goes on.
   */
  start(label: string, total?: number, unit?: string, before?: number): ProgressTask;
}
