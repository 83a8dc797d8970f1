/** RewardBench's sections (Lambert et al. 2024): their subsets and weights. */

const sections: Readonly<Record<string, readonly string[]>> = {
  Chat: ['alpacaeval-easy', 'alpacaeval-length', 'alpacaeval-hard', 'mt-bench-easy', 'mt-bench-med'],
  'Chat Hard': [
    ...['mt-bench-hard', 'llmbar-natural', 'llmbar-adver-neighbor', 'llmbar-adver-GPTInst'],
    ...['llmbar-adver-GPTOut', 'llmbar-adver-manual'],
  ],
  Safety: ['refusals-dangerous', 'refusals-offensive', 'xstest-should-refuse', 'xstest-should-respond', 'donotanswer'],
  Reasoning: ['math-prm', 'hep-cpp', 'hep-go', 'hep-java', 'hep-js', 'hep-python', 'hep-rust'],
};

/** The indices of each section's items, with weights. A set without RewardBench's subsets has no sections. */
export function sectionsOf(
  subsets: readonly (string | undefined)[],
): Record<string, { places: number[]; weights: number[] }> {
  const found: Record<string, { places: number[]; weights: number[] }> = {};
  for (const [section, names] of Object.entries(sections)) {
    const places = [...subsets.keys()].filter((i) => names.includes(subsets[i] ?? ''));
    if (places.length === 0) continue;
    const math = places.filter((i) => subsets[i] === 'math-prm').length;
    const code = places.length - math;
    // Mathematics has the same weight as code: its 447 items weigh as much as 984.
    const mathWeight = section === 'Reasoning' && math > 0 && code > 0 ? code / math : 1;
    found[section] = { places, weights: places.map((i) => (subsets[i] === 'math-prm' ? mathWeight : 1)) };
  }
  return found;
}
