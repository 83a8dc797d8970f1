/** Well-known sets on the hub under short names: the location of their rows, and their published settings. */

/** The location of a well-known set, and how it is usually asked. */
export interface KnownSuite {
  repo: string;
  format: string;
  subset?: string;
  split?: string;
  /** The split for few-shot examples; undefined if it has none. */
  shotsSplit?: string;
  /** Files that belong neither to the questions nor to the few-shot examples. */
  without?: RegExp;
  shotsWithout?: RegExp;
  /** The number of few-shot examples in lm-evaluation-harness's task, if it uses any. */
  shots?: number;
  about: string;
}

const arc = { repo: 'allenai/ai2_arc', format: 'arc', split: 'test', shotsSplit: 'train' };

const known: Record<string, KnownSuite> = {
  gsm8k: {
    ...{ repo: 'openai/gsm8k', format: 'gsm8k', subset: 'main', split: 'test', shotsSplit: 'train', shots: 5 },
    about: 'grade school word problems; the answer after ####',
  },
  'math-500': {
    ...{ repo: 'HuggingFaceH4/MATH-500', format: 'math', split: 'test' },
    about: 'competition problems in LaTeX; the answer in \\boxed{}',
  },
  'arc-easy': { ...arc, subset: 'ARC-Easy', about: 'science questions of grades 3 to 9' },
  'arc-challenge': { ...arc, subset: 'ARC-Challenge', about: 'those of them that simple methods get wrong' },
  hellaswag: {
    ...{ repo: 'Rowan/hellaswag', format: 'hellaswag', split: 'validation', shotsSplit: 'train' },
    about: 'how a scene goes on',
  },
  mmlu: {
    // "dev" and "validation" both count as validation splits. The few-shot examples are those of dev.
    ...{ repo: 'cais/mmlu', format: 'mmlu', subset: 'all', split: 'test', shotsSplit: 'validation' },
    ...{ shotsWithout: /(^|\/)validation-/, about: 'school and professional knowledge in 57 subjects' },
  },
  ifeval: { repo: 'google/IFEval', format: 'ifeval', split: 'all', about: 'instructions that code can check' },
};

/** The known suite with this name in any spelling (`ARC_Challenge`, `math500`), or with this repository name. */
export function knownSuite(name: string): KnownSuite | undefined {
  const plain = (text: string) => text.toLowerCase().replace(/[^a-z0-9/]/g, '');
  const entry = Object.entries(known).find(([key]) => plain(key) === plain(name));
  const ofRepo = Object.values(known).filter(({ repo }) => plain(repo) === plain(name));
  return entry?.[1] ?? (ofRepo.length === 1 ? ofRepo[0] : undefined);
}

/** The known suites: names with short descriptions. */
export const knownSuites: readonly { name: string; about: string }[] = Object.entries(known).map(
  ([name, { about }]) => ({
    ...{ name, about },
  }),
);
