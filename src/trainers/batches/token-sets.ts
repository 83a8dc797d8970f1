/** Training and held-out examples, tokenised. */
import { type Dataset, type Shape, type TokeniseOptions, type TokenStore, tokenise } from '../../data/index.ts';
import type { Tokenizer } from '../../text/index.ts';

export interface TokenSets {
  train: TokenStore;
  validation: TokenStore | undefined;
  close(): Promise<void>;
}

export async function tokenSets<S extends Shape>(
  sets: { train: Dataset<S>; validation: Dataset<S> | undefined },
  tokenizer: Tokenizer,
  encoding: TokeniseOptions,
): Promise<TokenSets> {
  const train = await tokenise(sets.train, tokenizer, encoding);
  const validation = sets.validation === undefined ? undefined : await tokenise(sets.validation, tokenizer, encoding);
  return {
    train,
    validation,
    async close() {
      await train.close();
      await validation?.close();
    },
  };
}
