/** Training and held-out examples, tokenised. */
import { type Dataset, type Shape, type TokeniseOptions, type TokenStore, tokenise } from '../../data/index.ts';
import { joinWorld, soloWorld } from '../../dist/world.ts';
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
  // Ranks after the first find the tokens in the cache; without one each makes its own.
  const world = encoding.cache === false ? soloWorld : await joinWorld();
  const { train, validation } = await world.firstThenRest('tokens', async () => {
    await using opened = new AsyncDisposableStack(); // the first set, where the second one fails
    const train = opened.use(await tokenise(sets.train, tokenizer, encoding));
    const validation =
      sets.validation === undefined ? undefined : opened.use(await tokenise(sets.validation, tokenizer, encoding));
    opened.move();
    return { train, validation };
  });
  return {
    train,
    validation,
    async close() {
      await train.close();
      await validation?.close();
    },
  };
}
