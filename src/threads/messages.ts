/** What a thread with a user's module is told, and what it says. */
export type ThreadRequest =
  | { kind: 'call'; number: number; request: object }
  | { kind: 'abort'; number: number }
  | { kind: 'ping' };

export type ThreadReply =
  | { kind: 'ready' }
  | { kind: 'unusable'; message: string }
  /** It has come to a call, whose time limit begins. */
  | { kind: 'begun'; number: number }
  | { kind: 'done'; number: number; value: unknown }
  | { kind: 'failed'; number: number; message: string; fault: string }
  | { kind: 'alive' };

/** Users may throw anything, also strings. */
export const messageOf = (error: unknown) => (error instanceof Error ? error.message : String(error));
