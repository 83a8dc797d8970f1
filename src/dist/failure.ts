/** The error of a world that cannot go on: a rank is missing, has failed, or cannot be reached. */
import { AttuneError } from '../errors.ts';

export class WorldError extends AttuneError {
  override name = 'WorldError';
}
