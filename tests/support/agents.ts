/** Agents for tests, and a client in few lines. */
import { type AgentRunOptions, defineAgent } from '../../src/environments/index.ts';
import { isEven } from './turns.ts';

export interface Said {
  role: string;
  content: string;
  tool_calls?: { id: string; type: 'function'; function: { name: string; arguments: string } }[];
  tool_call_id?: string;
}

/** What the policy says next; an answer that is no success is an error. */
export async function callPolicy(
  { baseURL, apiKey, model, signal }: Pick<AgentRunOptions, 'baseURL' | 'apiKey' | 'model' | 'signal'>,
  messages: readonly Said[],
  more: object = {},
): Promise<Said & { finish: string }> {
  const response = await fetch(`${baseURL}/chat/completions`, {
    ...{ method: 'POST', signal },
    headers: { 'Content-Type': 'application/json', Authorization: `Bearer ${apiKey}` },
    body: JSON.stringify({ model, messages, ...more }),
  });
  const answer = (await response.json()) as {
    choices: { message: Said; finish_reason: string }[];
    error?: { message: string };
  };
  if (!response.ok) throw new Error(`${response.status} ${answer.error?.message}`);
  const [choice] = answer.choices;
  return { ...(choice?.message as Said), finish: choice?.finish_reason as string };
}

/** Two conversations: two turns in one, a question of a second agent, and another one that begins anew. Even answers are paid. */
export const talker = defineAgent({
  name: 'talker',
  parts: ['even'],
  start: ({ random }) => ({ number: random.int(0, 1e6) }),
  async run(asked) {
    const { problem } = asked;
    const messages: Said[] = [
      { role: 'system', content: 'good' },
      { role: 'user', content: `red ${problem.number}` },
    ];
    const first = await callPolicy(asked, messages);
    messages.push({ role: 'assistant', content: first.content }, { role: 'user', content: 'yes' });
    const second = await callPolicy(asked, messages);
    const other = await callPolicy(asked, [{ role: 'user', content: 'blue' }]);
    messages.push({ role: 'assistant', content: second.content }, { role: 'user', content: 'no' });
    const third = await callPolicy(asked, messages);
    const said = [first, second, other, third].map(({ content }) => Number(isEven(content)));
    const even = said.reduce((sum, each) => sum + each, 0) / said.length;
    return { parts: { even }, success: even > 0.5 };
  },
});
