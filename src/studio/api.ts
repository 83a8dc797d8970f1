/**
 * Every type that crosses the wire between the studio's server (src/studio) and its page (studio/). Types only: the
 * page imports this file with `import type`. Fields are added, never renamed or removed.
 *
 * Answers are JSON. A refused request has a status of 400 or more and an `ApiFailure` as its body. Mutations (POST)
 * carry the header `x-attune-studio: 1`. Times are milliseconds since 1970 unless a comment says otherwise; sizes are
 * bytes. JSON has no NaN: a number that is not finite is null.
 */
export type * from './api/chat.ts';
export type * from './api/data.ts';
export type * from './api/models.ts';
export type * from './api/rollouts.ts';
export type * from './api/runs.ts';
export type * from './api/session.ts';
export type * from './api/train.ts';
