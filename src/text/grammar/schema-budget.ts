/** Limits on the cost of a schema, since it may come from anyone. */
import { UserError } from '../../errors.ts';

/** Subschemas, names, values and alternatives, after expansion. */
const mostParts = 5000;
/** Characters of names and values. */
const mostCharacters = 2 ** 17;
/** Comparisons of alternatives with each other. */
const mostComparisons = 2 ** 17;
/** Levels of subschemas, including references: the code that reads them recurses level by level. */
const mostLevels = 250;

export class SchemaBudget {
  #parts = 0;
  #characters = 0;
  #comparisons = 0;
  #level = 0;

  part(count = 1): void {
    this.#parts += count;
    if (this.#parts > mostParts)
      throw new UserError(`The schema has more than ${mostParts} parts, counting those of each alternative.`);
  }

  characters(count: number): void {
    this.#characters += count;
    if (this.#characters > mostCharacters)
      throw new UserError(`The names and values of the schema have more than ${mostCharacters} characters.`);
  }

  comparison(): void {
    if (++this.#comparisons > mostComparisons)
      throw new UserError(
        'The alternatives of the schema take too long to compare with each other: name fewer of them.',
      );
  }

  /** Runs `body` one level deeper. */
  deeper<T>(body: () => T): T {
    if (++this.#level > mostLevels)
      throw new UserError(`The schema is nested deeper than ${mostLevels} levels, with its references.`);
    try {
      return body();
    } finally {
      this.#level--;
    }
  }
}
