/**
 * Your own agent, which calls the policy through OpenAI's API: a sorting problem, and a second call that checks the
 * first.
 *
 *     npm run example -- own-agent [--steps 20]
 */
import { parseArgs } from 'node:util';
import { trainPolicy } from 'attune';
import { defineAgent } from 'attune/environments';
import { task } from 'attune/tasks';
import OpenAI from 'openai';

const { values: flags } = parseArgs({ options: { steps: { type: 'string', default: '20' } } });
const sorting = task('number_sorting');

const checked = defineAgent({
  name: 'checked_sorting',
  parts: ['first', 'second'],
  start: ({ seed }) => sorting.generate(seed, 1),
  async run({ problem, baseURL, apiKey, model, signal }) {
    const client = new OpenAI({ baseURL, apiKey });
    const ask = async (content: string) => {
      const messages = [{ role: 'user' as const, content }];
      return (await client.chat.completions.create({ model, messages }, { signal })).choices[0]?.message.content ?? '';
    };
    const first = await ask(problem.prompt);
    const second = await ask(`${problem.prompt}\nIs this right? If not, mend it: ${first}`);
    const scores = { first: sorting.score(first, problem), second: sorting.score(second, problem) };
    return { parts: scores, success: scores.second === 1 };
  },
});

for await (const { step, train } of trainPolicy({
  ...{ algorithm: 'rloo', model: 'models/tiny', agent: checked, maxNewTokens: 100, maxSteps: Number(flags.steps) },
  ...{ batchSize: 4, gradAccum: 1, lr: 2e-4, evalSteps: -1, outputDir: 'checkpoints/own', saveModel: false },
  ...{ saveRollouts: false, reportTo: ['none'] },
}))
  console.log(`step ${step}  first ${train.reward_first?.toFixed(2)}  checked ${train.reward_second?.toFixed(2)}`);
