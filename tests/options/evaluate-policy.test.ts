/** Every option of `attune evaluate policy` does something or is refused; see command-walk.ts. */
import { writeFileSync } from 'node:fs';
import { afterAll, beforeAll, vi } from 'vitest';
import { evaluatePolicySchema } from '../../src/cli/evaluate-policy.ts';
import { changes, fails, mends, refused, walkCommand } from './command-walk.ts';
import { agentOf, at, makeModels, makeRewardModel, questions, removeFiles, templated, writeRows } from './files.ts';

// Pictures take most of such a run, and no option is about them.
vi.mock('../../src/runs/plots/plots.ts', async (whole) => ({
  ...(await whole<object>()),
  toPng: async () => new Uint8Array(),
}));

afterAll(removeFiles);
beforeAll(async () => {
  await makeModels();
  templated('chatting', '{% for m in messages %}good {{ m.content }} good{% endfor %}');
  writeRows(
    'answers.jsonl',
    questions.map((prompt, i) => ({ prompt, answer: String(i) })),
  );
  writeRows(
    'others.jsonl',
    questions.toReversed().map((prompt) => ({ prompt, answer: 'red' })),
  );
  writeFileSync(at('by-length.mjs'), 'export default (items) => items.map(({ response }) => response.length);');
  writeFileSync(
    at('by-vowels.mjs'),
    'export default (items) => items.map(({ response }) => response.split("e").length);',
  );
  writeFileSync(
    at('slow-env.mjs'),
    `export default { name: 'slow', start: ({ random }) => ({ messages: 'red ' + random.int(1, 1e6), step: () => new Promise((r) => setTimeout(() => r({ done: true }), 400)) }) };`,
  );
  for (const [name, reward] of [
    ['agent', 0.25],
    ['other-agent', 0.5],
  ] as const)
    writeFileSync(at(`${name}.mjs`), agentOf(reward));
  await makeRewardModel('rm');
});

const byModel = () => ({ rewardModule: undefined, rewardModelPath: at('rm') });
const played = { dataset: undefined, rewardModule: undefined, promptFormat: 'transcript', maxNewTokens: 200 };
const ofEnvironment = (value: unknown) =>
  refused(value, /the environment gives the reward/, { ...played, env: 'guess:1' });
const task = { task: 'spell_backward:1', dataset: undefined };

walkCommand(['evaluate', 'policy'], evaluatePolicySchema, {
  output: 'outputDir',
  // The JSON begins with what was evaluated, as the page does; the page has the figures of the JSON.
  counted: (name, text) => (name.endsWith('.html') ? '' : text.slice(text.indexOf('"summary"'))),
  base: () => ({
    ...{ model: at('model'), dataset: at('answers.jsonl'), rewardModule: at('by-length.mjs'), dtype: 'float32' },
    ...{ numPrompts: 4, samples: 2, maxNewTokens: 6 },
  }),
  proofs: {
    model: changes(() => at('other')),
    tokenizer: mends(
      () => at('model'),
      () => ({ model: at('bare') }),
    ),
    dtype: changes('bfloat16', { maxNewTokens: 20 }),
    device: fails('cuda:99', /cuda/i),
    reference: changes(() => at('other')),
    opponent: changes(() => at('other')),
    numPrompts: changes(2),
    samples: changes(3),
    outputDir: fails('/proc/nope', /--output-dir/),
    task: changes('gcd:1', task),
    env: [
      changes('guess:2', { ...played, env: 'guess:1' }),
      fails('guess', /leave --dataset out/, { rewardModule: undefined }),
    ],
    agent: [
      changes(
        () => at('other-agent.mjs'),
        () => ({ ...played, agent: at('agent.mjs') }),
      ),
      fails('./nowhere.ts', /There is no agent module/, () => ({ ...played, agent: at('agent.mjs') })),
    ],
    maxTurns: [changes(1, { ...played, env: 'guess:1' }), refused(3, /there is no --env/)],
    toolTimeout: [
      fails(0.1, /took longer than 0\.1 s/, () => ({ ...played, env: at('slow-env.mjs') })),
      refused(3, /there is no --env/),
    ],
    dataset: changes(() => at('others.jsonl')),
    subset: [refused('x', /file/), refused('x', /--task/, task)],
    promptMaxLength: fails(1, /--prompt-max-length/),
    promptFormat: changes('raw', () => ({ model: at('chatting') })),
    system: [
      changes('Be good.'),
      refused('x', /an agent writes all its messages itself/, () => ({ ...played, agent: at('agent.mjs') })),
    ],
    rewardModelPath: [changes(() => at('rm')), ofEnvironment('x')],
    rmQuantType: [changes('int4', byModel), fails('int4', /there is no reward model/)],
    rmPrecision: [fails('quick', /exact.*fast/, byModel), fails('fast', /there is no reward model/)],
    rewardModule: [changes(() => at('by-vowels.mjs')), ofEnvironment('./my-reward.ts')],
    rewardWeights: [changes(['by-length=3']), ofEnvironment(['by-length=3'])],
    verifierReward: [changes(true), ofEnvironment(true)],
    formatReward: [changes(true, { ...task, rewardModule: undefined }), refused(true, /verifier/), ofEnvironment(true)],
    maxNewTokens: changes(3),
    temperature: [changes(3), refused(0.5, /--samples 0/, { samples: 0 })],
    topP: [changes(0.05), refused(0.5, /--samples 0/, { samples: 0 })],
    seed: changes(7),
    cacheDtype: changes('int8', { maxNewTokens: 60, samples: 4 }),
  },
});
