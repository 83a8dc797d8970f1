import { expect, it } from 'vitest';
import { HubUnreachable } from '../hub/request.ts';
import { toApiError } from './api-error.ts';

it('says that the hub cannot be asked; the details of other failures stay in the log', () => {
  const hub = toApiError(new HubUnreachable('nope is not in the cache, and the hub cannot be asked.'));
  expect([hub.status, hub.message]).toEqual([502, expect.stringContaining('the hub cannot be asked')]);
  const other = toApiError(new TypeError('x is not a function'));
  expect([other.status, other.message]).toEqual([500, expect.not.stringContaining('function')]);
});
