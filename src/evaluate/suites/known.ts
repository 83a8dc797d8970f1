/** Well-known sets of the hub, under short names: where their rows are, and their published way of asking. */

/** Where a well-known set is, and how it is usually asked. */
export interface KnownSuite {
  /** Its repository. */
  repo: string;
  format: string;
  subset?: string;
  split?: string;
  /** The part that few-shot examples come from; undefined where it has none. */
  shotsSplit?: string;
  /** Files that are not part of the questions, or of the few-shot examples. */
  without?: RegExp;
  shotsWithout?: RegExp;
  /** Few-shot examples of lm-evaluation-harness's task, where it asks for some. */
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
    // "dev" and "validation" both count as validation splits: the few-shot examples are those of dev.
    ...{ repo: 'cais/mmlu', format: 'mmlu', subset: 'all', split: 'test', shotsSplit: 'validation' },
    ...{ shotsWithout: /(^|\/)validation-/, about: 'school and professional knowledge in 57 subjects' },
  },
  ifeval: { repo: 'google/IFEval', format: 'ifeval', split: 'all', about: 'instructions that code can check' },
};

/** The known suite of this name, in any spelling (`ARC_Challenge`, `math500`), or of its repository's name. */
export function knownSuite(name: string): KnownSuite | undefined {
  const plain = (text: string) => text.toLowerCase().replace(/[^a-z0-9/]/g, '');
  const entry = Object.entries(known).find(([key]) => plain(key) === plain(name));
  const ofRepo = Object.values(known).filter(({ repo }) => plain(repo) === plain(name));
  return entry?.[1] ?? (ofRepo.length === 1 ? ofRepo[0] : undefined);
}

/** The names of the known suites, each with a few words about it. */
export const knownSuites: readonly { name: string; about: string }[] = Object.entries(known).map(
  ([name, { about }]) => ({
    ...{ name, about },
  }),
);
