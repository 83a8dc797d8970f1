/**
 * A launcher's verdict on ranks that have ended: which of them failed by itself, and why. What several ranks report is
 * shown once: every rank meets a mistake of the user.
 */
import { wasAsked } from '../../exit-codes.ts';

/** How a rank of this machine ended. */
export interface EndedRank {
  rank: number;
  pid: number | undefined;
  ended?: { code: number | null; signal: NodeJS.Signals | null };
  /** Its last lines on standard error. */
  errors: readonly string[];
  /** The error that ended it, as it told the launcher. */
  error?: { text: string; code: number };
  /** Whether the launcher ended it after another one had failed. */
  wasEnded?: boolean;
}

export interface Verdict {
  /** The exit code of the rank that failed first. */
  code: number;
  /** The user's mistake in the command that all ranks run, which is no single rank's fault. */
  mistake?: string;
  /** Why the first rank to fail did so, naming it. */
  failure: string;
  /** Other ranks' own errors, naming them. */
  others: string[];
}

/** Messages of a rank that only noticed another one's end. */
const echo = /has ended the run|failed on rank \d+ of|The store of rank 0|did not reach the store/;

const hasFailed = ({ ended, error, wasEnded = false }: EndedRank) =>
  error !== undefined || (ended !== undefined && ended.code !== 0 && !wasEnded);
/** Whether it only noticed another rank's end. */
export const isEcho = ({ error, errors }: EndedRank) =>
  error === undefined ? errors.some((line) => echo.test(line)) : echo.test(error.text);

/** Whether it ended on request: by a signal, or because another rank got one. */
export const endedAsAsked = ({ ended, error, wasEnded = false }: EndedRank): boolean =>
  !wasEnded && error === undefined && wasAsked(ended?.code ?? null);

/** A rank that dies takes others with it: the culprit is the one that was killed, or failed for a reason of its own. */
export function culpritOf<R extends EndedRank>(ranks: readonly R[]): R | undefined {
  const failed = ranks.filter(hasFailed);
  return (
    failed.find(({ ended, wasEnded }) => ended?.signal && !wasEnded) ??
    failed.find((rank) => !isEcho(rank)) ??
    failed[0]
  );
}

/** The verdict when all have ended. */
export function verdictOn(culprit: EndedRank, ranks: readonly EndedRank[]): Verdict {
  const code = culprit.error?.code ?? culprit.ended?.code ?? 1;
  const text = culprit.error?.text;
  const same = ranks.filter(({ error }) => error !== undefined && error.text === text);
  // Rank 0 has the console. If it alone got this far, it speaks for all, and others may only have heard of it.
  const isShared = culprit.error?.code === 2 && (same.length > 1 || culprit.rank === 0 || isEcho(culprit));
  const others = ranks.filter((each) => each !== culprit && each.error !== undefined && !same.includes(each));
  return {
    code,
    ...(isShared ? { mistake: text as string } : {}),
    failure: `rank ${culprit.rank} (process ${culprit.pid}) ${howItEnded(culprit)}`,
    others: others.filter((each) => !isEcho(each)).map(({ rank, error }) => `[rank ${rank}] ${error?.text}`),
  };
}

function howItEnded({ ended, errors, error, wasEnded }: EndedRank): string {
  // A rank that the launcher ended but that had an error of its own had failed before, and said why.
  if (wasEnded && error !== undefined) return failedWith(error.code, error.text);
  if (ended?.signal === 'SIGKILL') return 'was killed (SIGKILL: by somebody, or by the system for want of memory)';
  if (errors.some((line) => /heap out of memory/.test(line)))
    return "ran out of memory: JavaScript's heap is full (NODE_OPTIONS=--max-old-space-size=… makes it larger)";
  if (ended?.signal) return `was ended by ${ended.signal}`;
  // Hints in parentheses follow the error.
  const last = error?.text ?? errors.filter((line) => /^\s*[^\s(]/.test(line)).at(-1);
  return failedWith(ended?.code, last);
}

const failedWith = (code: number | null | undefined, text: string | undefined) =>
  `ended with exit code ${code}${text === undefined ? '' : `: ${text.trim().replace(/^attune: |\.$/g, '')}`}`;
