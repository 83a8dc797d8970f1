/** A run's colour in a comparison, by its place among the chosen. */
export const runColor = (index: number) => `--series-${(index % 10) + 1}`;
