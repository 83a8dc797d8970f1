/** The tokenised training and held-out examples. */
import { type Dataset, type Shape, type TokeniseOptions, type TokenStore, tokenise } from '../../data/index.ts';
import { leftOutText } from '../../data/tally.ts';
import { joinWorld, soloWorld } from '../../dist/world.ts';
import type { Progress } from '../../progress.ts';
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
  // Rank 0 tokenises and the others read its cache. Without a cache every rank tokenises for itself.
  const world = encoding.cache === false ? soloWorld : await joinWorld();
  const { train, validation } = await world.firstThenRest('tokens', async () => {
    await using opened = new AsyncDisposableStack(); // closes the first set if the second fails
    const train = opened.use(await tokenise(sets.train, tokenizer, encoding));
    const validation =
      sets.validation === undefined ? undefined : opened.use(await tokenise(sets.validation, tokenizer, encoding));
    opened.move();
    return { train, validation };
  });
  tellLeftOut(train, sets.train, encoding.progress);
  if (validation !== undefined && sets.validation !== undefined)
    tellLeftOut(validation, sets.validation, encoding.progress, ', held out');
  return {
    train,
    validation,
    async close() {
      await train.close();
      await validation?.close();
    },
  };
}

/** Reports dropped rows before training, instead of leaving them to be discovered in the result. */
function tellLeftOut(store: TokenStore, { name, tally }: Dataset<Shape>, progress?: Progress, part = ''): void {
  const text = leftOutText(store.tally);
  if (text === undefined) return;
  // With cached tokens the rows were not read, so `tally` has no faults to show.
  const [first] = store.tally.badRows > 0 ? tally.faults : [];
  progress?.start(`${name}${part}`).done(`left out: ${text}${first === undefined ? '' : ` (the first: ${first})`}`);
}
