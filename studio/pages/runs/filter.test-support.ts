/** A run of the list, for tests. */
import type { RunRow } from '../../../src/studio/api.ts';

export const run = (name: string, more: Partial<RunRow> = {}): RunRow => ({
  id: name,
  name,
  path: `grpo/${name}`,
  kind: 'policy',
  state: 'finished',
  step: 1,
  last: {},
  bytes: 10,
  created: 0,
  updated: 0,
  checkpoints: 0,
  hasRollouts: false,
  hasTokens: false,
  tags: [],
  setup: name,
  ...more,
});
