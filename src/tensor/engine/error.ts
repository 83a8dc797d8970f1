/** The error that the engine throws. */
import { AttuneError } from '../../errors.ts';

/** An operator refused its arguments. The message names the operator and what it was given. */
export class TensorError extends AttuneError {
  override name = 'TensorError';
  readonly operator: string;
  constructor(operator: string, message: string) {
    super(message);
    this.operator = operator;
  }
}

/** Runs a call into the addon. An error from it becomes a TensorError that names the operation and its arguments. */
export function attempt<T>(doing: string, call: () => T, given: readonly unknown[] = []): T {
  try {
    return call();
  } catch (error) {
    if ((error as { code?: string }).code !== 'ATTUNE_NATIVE') throw error;
    const what = given.length === 0 ? '' : `\n  given: ${given.map(String).join(', ')}`;
    throw new TensorError(doing, `${doing}: ${(error as Error).message}${what}`);
  }
}
