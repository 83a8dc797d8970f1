/** Agents' calls as token sequences: which calls continue a conversation, which start one, and which are refused. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { callPolicy, type Said } from '../../../tests/support/agents.ts';
import { tinyModel } from '../../../tests/support/tiny-model.ts';
import { type Agent, defineAgent, openAgents } from '../../environments/index.ts';
import { agentText } from '../../environments/recipe.ts';
import type { GenerationRequest, SampledResponse } from '../../models/index.ts';
import { Tokenizer } from '../../text/index.ts';
import { EnvironmentPrompts } from '../environment-prompts.ts';
import { agentPrompt } from '../prompts.ts';
import { type Rollout, type RolloutSampler, rolloutSeeds } from '../rollout.ts';
import { AgentPlayer, type AgentPlayerOptions } from './player.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-agents-'));
const template = `{% if tools %}<s>tools: {{ tools | tojson }} <tool_call></s>{% endif %}{% for m in messages %}<{{ m.role }}>{% if m.name %}({{ m.name }}){% endif %}{{ m.reasoning_content or '' }}{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.name }}</tool_call>{% endfor %}</s>{% endfor %}{% if add_generation_prompt %}<assistant>{% if thinks is defined and not thinks %}<no>{% endif %}{% endif %}`;
let tokenizer: Tokenizer;
let tooled: Tokenizer;
beforeAll(async () => {
  tokenizer = await Tokenizer.load(await tinyModel(join(folder, 'model')));
  const path = await tinyModel(join(folder, 'tooled'));
  const config = JSON.parse(readFileSync(join(path, 'tokenizer_config.json'), 'utf8'));
  writeFileSync(join(path, 'tokenizer_config.json'), JSON.stringify({ ...config, chat_template: template }));
  tooled = await Tokenizer.load(path);
});
afterAll(() => rmSync(folder, { recursive: true }));

/** A sampler that says these texts in turn. */
function saying(texts: readonly string[], by: Tokenizer = tokenizer) {
  const requests: GenerationRequest[] = [];
  const sampler: RolloutSampler = {
    dispose() {},
    generate: async (asked) =>
      asked.map((request) => {
        requests.push(request);
        const text = texts[Math.min(requests.length, texts.length) - 1] as string;
        const whole = [...by.encode(text), by.eosId as number];
        const ids = whole.slice(0, request.maxNewTokens);
        const finish = ids.length === whole.length ? 'stop' : 'length';
        return [{ ids, logprobs: Float32Array.from(ids, (_, i) => -i - requests.length), finish } as SampledResponse];
      }),
  };
  return { sampler, requests };
}

type Asked = Partial<AgentPlayerOptions> & { maxNewTokens?: number; groupSize?: number; by?: Tokenizer };

async function play(agent: Agent | string, sampler: RolloutSampler, asked: Asked = {}): Promise<Rollout[]> {
  const { maxNewTokens = 200, groupSize = 1, by = tokenizer, ...options } = asked;
  using opened = await openAgents(agentText(agent), { timeLimitMs: 5000 });
  const prompts = await (
    await EnvironmentPrompts.open(opened, { write: agentPrompt, maxLength: 300 }, { seed: 1 })
  ).take(1);
  const rules = { maxTurns: 6, maxPromptTokens: 300, timeLimitMs: 5000, onError: 'stop' as const };
  const player = new AgentPlayer(by, { ...rules, ...options });
  return player.play(sampler, prompts, { groupSize, maxNewTokens, temperature: 1, seeds: rolloutSeeds(3, 'x') });
}

let names = 0;
const agentOf = (run: Agent<string>['run'], more: Partial<Agent<string>> = {}) =>
  defineAgent({ name: `agent_${names++}`, start: ({ random }) => `red ${random.int(0, 1e6)}`, run, ...more });

const user = (content: string): Said => ({ role: 'user', content });

/** The sequences of a rollout, and the policy's own parts in each. */
function sequencesOf({ ids, starts = [], spans = [] }: Rollout) {
  return Array.from(starts, (start, i) => {
    const end = starts[i + 1] ?? ids.length;
    const own: number[][] = [];
    for (let at = 0; at < spans.length; at += 2)
      if ((spans[at] as number) >= start && (spans[at] as number) < end)
        own.push(Array.from(ids.slice(spans[at], spans[at + 1])));
    return { ids: Array.from(ids.slice(start, end)), own };
  });
}

describe('calls', () => {
  it('that repeat a conversation go on behind its sampled ids; all others begin one', async () => {
    const finishes: string[] = [];
    const agent = agentOf(async (asked) => {
      const start = [{ role: 'system', content: 'good' }, user(asked.problem)];
      const a = await callPolicy(asked, start);
      // Fields that a client adds or omits do not start a new conversation.
      const first = [...start, { role: 'assistant', content: a.content, refusal: null } as Said];
      const b = await callPolicy(asked, [...first, user('no')], { temperature: 0.1 });
      await callPolicy(asked, [user('blue')]);
      // The client edited the answer.
      await callPolicy(asked, [...start, { role: 'assistant', content: `${a.content}!` }, user('no')]);
      const second = [...first, user('no'), { role: 'assistant', content: b.content }];
      finishes.push((await callPolicy(asked, [...second, user('3')], { max_tokens: 1 })).finish);
      return { reward: 2, success: true };
    });
    const { sampler, requests } = saying(['yes', 'good 7', 'bad', 'red', 'good']);
    const [rollout] = (await play(agent, sampler)) as [Rollout];
    const eos = tokenizer.eosId as number;
    const [main, other, edited] = sequencesOf(rollout);
    const said = (text: string) => [...tokenizer.encode(text), eos];
    expect(main?.own).toEqual([said('yes'), said('good 7'), tokenizer.encode('good').slice(0, 1)]);
    expect([other?.own, edited?.own]).toEqual([[said('bad')], [said('red')]]);
    // Each call reads exactly what precedes its answer.
    const prompts = requests.map(({ prompt }) => Array.from(prompt));
    expect(main?.ids).toEqual([...(prompts[4] ?? []), ...(main?.own[2] ?? [])]);
    expect(prompts[1]).toEqual(main?.ids.slice(0, prompts[1]?.length));
    expect(prompts[4]?.slice(0, prompts[1]?.length)).toEqual(prompts[1]);
    expect(edited?.ids.slice(0, prompts[3]?.length)).toEqual(prompts[3]);
    expect(new Set(requests.map(({ seed }) => seed)).size).toBe(5);
    expect(requests.map(({ temperature }) => temperature)).toEqual([1, 1, 1, 1, 1]);
    expect(rollout.lpOld).toHaveLength(rollout.responseIds.length);
    expect(rollout).toMatchObject({ score: 2, ended: true, episode: { end: 'done', success: true } });
    expect(finishes).toEqual(['length']);
    expect(rollout.response).toMatch(
      /^system: good\nuser: red \d+\nassistant: yes\nuser: no\nassistant: good 7\nconversation: 2/,
    );
    // The same seeds give the same samples when the episode is played again.
    expect((await play(agent, saying(['yes', 'good 7', 'bad', 'red', 'good']).sampler))[0]?.ids).toEqual(rollout.ids);
  });

  it('at the same time are conversations of their own, sampled together', async () => {
    let [most, now] = [0, 0];
    const { sampler } = saying(['yes']);
    const slow: RolloutSampler = {
      ...sampler,
      async generate(...asked) {
        most = Math.max(most, ++now);
        await new Promise((resolve) => setTimeout(resolve, 20));
        now--;
        return sampler.generate(...asked);
      },
    };
    const agent = agentOf(async (asked) => {
      await Promise.all([callPolicy(asked, [user('a')]), callPolicy(asked, [user('a')])]);
      return { reward: 1 };
    });
    const rollouts = await play(agent, slow, { groupSize: 3 });
    expect(most).toBeGreaterThanOrEqual(3);
    expect(rollouts.map(({ starts }) => starts?.length)).toEqual([2, 2, 2]);
  });

  it('may offer tools, whose calls and results go on with the conversation', async () => {
    const tools = [{ type: 'function', function: { name: 'add', parameters: { type: 'object' } } }];
    const seen: Said[] = [];
    const agent = agentOf(async (asked) => {
      const { finish, ...called } = await callPolicy(asked, [user('1 + 2')], { tools });
      seen.push(called);
      const result = { role: 'tool', content: '3', tool_call_id: called.tool_calls?.[0]?.id as string, name: 'add' };
      await callPolicy(asked, [user('1 + 2'), called, result], { tools });
      return { reward: Number(finish === 'tool_calls') };
    });
    const texts = ['<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>', 'good'];
    const [rollout] = (await play(agent, saying(texts, tooled).sampler, { by: tooled })) as [Rollout];
    expect(seen[0]?.tool_calls).toEqual([
      { id: 'call00010', type: 'function', function: { name: 'add', arguments: '{"a":1}' } },
    ]);
    expect(rollout.starts).toHaveLength(1);
    expect(tooled.decode(Array.from(rollout.ids))).toContain('</s><tool>(add)3</s><assistant>good');
    expect(rollout.score).toBe(1);
    await expect(play(agent, saying(texts).sampler)).rejects.toThrow(/knows no tools/);
  });

  it('with variables of the chat template are written with them in every turn', async () => {
    const agent = agentOf(async (asked) => {
      const more = { chat_template_kwargs: { thinks: false } };
      const { content } = await callPolicy(asked, [user('a')], more);
      const messages = [user('a'), { role: 'assistant', content }, user('b')];
      const next = await callPolicy(asked, messages, more);
      await callPolicy(asked, [...messages, { role: 'assistant', content: next.content }, user('c')], more);
      return { reward: 1 };
    });
    const [rollout] = (await play(agent, saying(['yes'], tooled).sampler, { by: tooled })) as [Rollout];
    expect(rollout.starts).toHaveLength(1);
    const text = tooled.decode(Array.from(rollout.ids), { skipSpecialTokens: false });
    expect(text.match(/<assistant>(<no>)?yes/g)).toEqual(Array(3).fill('<assistant><no>yes'));
  });

  it('without a token are refused', async () => {
    const agent = agentOf(async (asked) => {
      const said = await callPolicy(asked, [user('')]).catch((error: Error) => error.message);
      await callPolicy(asked, [user('a')]);
      return { reward: Number(/^400 The messages have no tokens/.test(String(said))) };
    });
    expect((await play(agent, saying(['yes']).sampler, { format: 'raw' }))[0]?.score).toBe(1);
  });

  it('may be streams', async () => {
    const agent = agentOf(async ({ baseURL, apiKey }) => {
      const response = await fetch(`${baseURL}/chat/completions`, {
        method: 'POST',
        headers: { 'Content-Type': 'application/json', Authorization: `Bearer ${apiKey}` },
        body: JSON.stringify({ messages: [user('a')], stream: true, stream_options: { include_usage: true } }),
      });
      const events = (await response.text())
        .trim()
        .split('\n\n')
        .map((line) => line.slice('data: '.length));
      const [last, ...chunks] = events.reverse();
      const text = chunks.reverse().map((each) => JSON.parse(each).choices[0]?.delta.content ?? '');
      return { reward: Number(last === '[DONE]' && text.join('') === 'good 7') };
    });
    expect((await play(agent, saying(['good 7']).sampler))[0]?.score).toBe(1);
  });

  it.each([
    [{ n: 2 }, /one answer/],
    [{ response_format: { type: 'json_object' } }, /grammar would choose/],
    [{ messages: [] }, /messages/],
    [{ reasoning: 1 }, /"reasoning" is not offered/],
  ])('with %j are refused', async (more, message) => {
    const agent = agentOf(async (asked) => {
      await callPolicy(asked, [user('a')], more);
      return { reward: 1 };
    });
    await expect(play(agent, saying(['a']).sampler)).rejects.toThrow(message);
  });
});

describe('an episode', () => {
  const counter = (more: (count: number) => string = () => 'no') =>
    agentOf(async (asked) => {
      const messages = [user(asked.problem)];
      for (let count = 1; ; count++) {
        const { content } = await callPolicy(asked, messages);
        messages.push({ role: 'assistant', content }, user(more(count)));
      }
    });

  it('ends where a call is refused: after its turns, or where there is no room', async () => {
    const ended = async (asked: Asked, agent = counter()) => {
      const [rollout] = (await play(agent, saying(['good 7']).sampler, asked)) as [Rollout];
      return [rollout.episode?.end, rollout.episode?.turns.length, rollout.ended, rollout.score];
    };
    expect(await ended({ maxTurns: 3 })).toEqual(['turns', 3, true, 0]);
    expect(await ended({ maxNewTokens: 12 })).toEqual(['length', 1, false, 0]);
    const long = counter((count) => 'a b c d '.repeat(60 * count));
    expect(await ended({}, long)).toEqual(['length', 1, false, 0]);
    const file = counter(() => 'a line '.repeat(1e6));
    expect(await ended({}, file)).toEqual(['length', 1, false, 0]);
    // Messages far too long are not tokenised, in whichever field the text is.
    const thinks = { role: 'assistant', content: 'a', reasoning_content: 'a line '.repeat(1e6) };
    const tools = [{ type: 'function', function: { name: 'f', description: 'a line '.repeat(1e6) } }];
    const refusalOf = async (messages: Said[], more: object = {}) => {
      let said = '';
      const agent = agentOf(async (asked) => {
        await callPolicy(asked, [user('a')]);
        await callPolicy(asked, messages, more).catch((error: Error) => (said = error.message));
        return { reward: 1 };
      });
      const [rollout] = (await play(agent, saying(['yes'], tooled).sampler, { by: tooled })) as [Rollout];
      return [rollout.episode?.end, rollout.ended, said];
    };
    const refused = (what: string) => [
      'length',
      false,
      expect.stringContaining(`400 ${what} more tokens than a whole`),
    ];
    expect(await refusalOf(Array(20_000).fill(user('a')))).toEqual(refused('20000 messages have'));
    expect(await refusalOf([user('a')], { tools })).toEqual(refused('What the call brings has'));
    expect(await refusalOf([user('a'), thinks as Said, user('b')])).toEqual(refused('What the call brings has'));
    // An agent that handles a refusal returns its own result.
    const content = agentOf(async (asked) => {
      await callPolicy(asked, [user('a')]);
      const refused = await callPolicy(asked, [user('b')]).catch((error: Error) => error.message);
      return { reward: Number(String(refused).includes('at most 1 calls')) };
    });
    expect(await ended({ maxTurns: 1 }, content)).toEqual(['turns', 1, true, 1]);
  });

  it('is bounded in the time that its agent takes, not in that of the policy', async () => {
    const { sampler } = saying(['yes']);
    const slow: RolloutSampler = {
      ...sampler,
      async generate(...asked) {
        await new Promise((resolve) => setTimeout(resolve, 250));
        return sampler.generate(...asked);
      },
    };
    let told = false;
    const agent = (milliseconds: number) =>
      agentOf(async (asked) => {
        await callPolicy(asked, [user('a')]);
        asked.signal.addEventListener('abort', () => (told = true));
        await new Promise((resolve) => setTimeout(resolve, milliseconds));
        return { reward: 1 };
      });
    expect((await play(agent(1), slow, { timeLimitMs: 200 }))[0]?.score).toBe(1);
    await expect(play(agent(5000), slow, { timeLimitMs: 200 })).rejects.toThrow(
      /took longer than 0.2 s without a call/,
    );
    expect(told).toBe(true);
  });
});

describe('a module', () => {
  const file = (name: string, run: string) => {
    const path = join(folder, `${name}.mjs`);
    writeFileSync(
      path,
      `const call = async ({ baseURL, apiKey }, content) => {
        const headers = { 'Content-Type': 'application/json', Authorization: 'Bearer ' + apiKey };
        const body = JSON.stringify({ messages: [{ role: 'user', content }] });
        const answer = await (await fetch(baseURL + '/chat/completions', { method: 'POST', headers, body })).json();
        return answer.choices[0].message.content;
      };
      let runs = 0;
      export default { name: '${name}', start: ({ random }) => ({ n: random.int(0, 1e6) }), async run(asked) { ${run} } };`,
    );
    return path;
  };

  it('plays in a thread of its own; episodes whose thread another one ended are played again with the same answers', async () => {
    // The others are waiting for their second answer meanwhile, so they are not to blame.
    const path = file(
      'exits',
      `const mine = runs++;
       const said = await call(asked, 'a');
       if (said === 'leave' && mine === 3) {
         await new Promise((resolve) => setTimeout(resolve, 300));
         process.exit(0);
       }
       return { reward: (await call(asked, said)).length };`,
    );
    const { sampler, requests } = saying(['red', 'blue', 'good', 'leave', 'yes']);
    const failures: string[] = [];
    const rollouts = await play(path, sampler, {
      ...{ groupSize: 4, onError: 'score', onFailure: (error) => failures.push(error.message) },
    });
    expect(rollouts.map(({ episode }) => episode?.turns.length)).toEqual([2, 2, 2, 1]);
    expect(failures).toEqual([expect.stringMatching(/left by process\.exit\(0\): an agent may not end the program/)]);
    expect(requests.length).toBe(7);
  });

  it('that is played again may have had calls refused, and calls at the same time in another order', async () => {
    const path = file(
      'refused',
      `const mine = runs++;
       if (mine === 2) {
         await call(asked, 'a');
         await new Promise((resolve) => setTimeout(resolve, 500));
         process.exit(0);
       }
       const wait = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
       const refused = await call(asked, 'red '.repeat(400)).catch(() => 'no');
       const order = mine < 2 ? [0, 50] : [50, 0];
       const both = ['b', 'c'].map((content, i) => wait(order[i]).then(() => call(asked, content)));
       const said = await Promise.all(both);
       return { reward: Number(refused === 'no') + said.length };`,
    );
    const failures: string[] = [];
    const rollouts = await play(path, saying(['yes']).sampler, {
      ...{ groupSize: 3, onError: 'score', onFailure: (error) => failures.push(error.message) },
    });
    expect(failures).toEqual([expect.stringMatching(/left by process\.exit/)]);
    expect(rollouts.map(({ episode, score }) => [episode?.end, episode?.turns.length, score])).toEqual([
      ['length', 2, 3],
      ['length', 2, 3],
      ['error', 1, 0],
    ]);
  });

  it('that hangs or loops for ever ends its own episode; those that wait for an answer go on', async () => {
    const marker = join(folder, 'looped').replaceAll('\\', '/');
    const hangs = 'await new Promise(() => {});';
    const loops = `await new Promise((resolve) => setTimeout(resolve, 100)); (await import('node:fs')).writeFileSync('${marker}', ''); for (;;);`;
    for (const [name, body] of Object.entries({ hangs, loops })) {
      const path = file(
        name,
        `const mine = runs++;
         if (mine === 1 && !(await import('node:fs')).existsSync('${marker}')) { ${body} }
         return { reward: (await call(asked, 'a')).length };`,
      );
      const failures: string[] = [];
      const rollouts = await play(path, saying(['yes', 'good 7']).sampler, {
        // A thread in an endless loop is ended a second later. The others need enough time after that, even on a busy
        // machine.
        ...{ groupSize: 3, timeLimitMs: 1500, onError: 'score', onFailure: (error) => failures.push(error.message) },
      });
      expect(failures).toEqual([expect.stringMatching(/took longer than [\d.]+ s without a call to the policy/)]);
      expect(rollouts.map(({ episode, score }) => [episode?.end, score])).toEqual([
        ['done', 3],
        ['error', 0],
        ['done', 6],
      ]);
    }
  });

  it('that is none is told', async () => {
    const path = join(folder, 'none.mjs');
    for (const [source, message] of [
      ['export const x = 1;', /exports no agent: it needs "export default defineAgent/],
      ["export default { name: 'a', run() {} };", /neither problems nor start/],
      ["export default { name: 'a b', problems: [1], run() {} };", /"a b" cannot be an agent's name/],
    ] as const) {
      writeFileSync(path, source);
      await expect(openAgents(path, { timeLimitMs: 5000 })).rejects.toThrow(message);
    }
  });
});
