/** The error of a world that cannot continue: a rank is missing, has failed, or cannot be reached. */
import { AttuneError, UserError } from '../errors.ts';

export class WorldError extends AttuneError {
  override name = 'WorldError';
}

/** A mistake of the user that another rank has reported. */
export class WorldMistake extends UserError {
  override name = 'WorldMistake';
}

/** Why a rank has ended the run, as it tells the others. */
export interface Farewell {
  rank: number;
  reason: string;
  isMistake?: boolean;
}

export function endedBy({ rank, reason, isMistake = false }: Farewell): Error {
  const text = `Rank ${rank} has ended the run: ${reason}`;
  return isMistake ? new WorldMistake(text) : new WorldError(text);
}
