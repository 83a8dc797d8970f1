/** The clients of the serve benchmark, in a process of their own so that their work is not the server's: a load in, its reading out. */
import { Agent, request } from 'node:http';
import { type Load, type LoadReading, messageOf, type Question, type QuestionReading, seedOf } from './requests.ts';

const agent = new Agent({ keepAlive: true, maxSockets: 1024 });

interface Streamed {
  tokens: number;
  firstTextMs?: number;
  whole: boolean;
  left: boolean;
  reason: string;
}

/** One streamed request, left after a random while where asked. */
function stream(url: string, body: object, leaveMs: number | undefined): Promise<Streamed> {
  const started = performance.now();
  const text = JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } });
  const headers = { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(text) };
  return new Promise((resolve) => {
    const result: Streamed = { tokens: 0, whole: false, left: false, reason: '' };
    const asked = request(`${url}/v1/chat/completions`, { method: 'POST', agent, headers }, (response) => {
      let tail = '';
      response.setEncoding('utf8');
      response.on('data', (piece: string) => {
        if (result.firstTextMs === undefined && /"content":"[^"]/.test(piece))
          result.firstTextMs = performance.now() - started;
        tail = (tail + piece).slice(-2000);
      });
      response.on('close', () => {
        result.whole = tail.includes('data: [DONE]');
        result.reason = `${response.statusCode} ${tail.slice(-200)}`;
        result.tokens = Number(/"completion_tokens":(\d+)/.exec(tail)?.[1] ?? 0);
        resolve(result);
      });
    });
    asked.on('error', (error) => resolve({ ...result, reason: error.message }));
    asked.end(text);
    if (leaveMs !== undefined)
      setTimeout(() => {
        result.left = true;
        asked.destroy();
      }, leaveMs);
  });
}

async function run(load: Load): Promise<LoadReading> {
  const started = performance.now();
  const passed = () => (performance.now() - started) / 1000;
  const reading: LoadReading = { seconds: 0, requests: 0, tokens: 0, left: 0, lost: 0, firstTextMs: [] };
  const goesOn = (round: number) => (load.seconds === undefined ? round < load.rounds : passed() < load.seconds);
  const client = async (index: number) => {
    for (let round = 0; goesOn(round); round++) {
      const leaves = Math.random() < load.leaving;
      const body = {
        messages: [{ role: 'user', content: messageOf(index, round, load.promptWords) }],
        max_tokens: load.maxTokens,
        seed: seedOf(index, round),
      };
      const { tokens, firstTextMs, whole, left, reason } = await stream(
        load.url,
        body,
        leaves ? Math.random() * 1500 : undefined,
      );
      reading.requests++;
      reading.tokens += tokens;
      if (left && !whole) reading.left++;
      else if (!whole) {
        reading.lost++;
        reading.reason ??= reason;
      }
      if (firstTextMs !== undefined) reading.firstTextMs.push(firstTextMs);
    }
  };
  await Promise.all(Array.from({ length: load.clients }, (_, index) => client(index)));
  return { ...reading, seconds: passed() };
}

/** One request, with its text. */
function ask({ url, messages, maxTokens }: Question): Promise<QuestionReading> {
  const clock = () => performance.timeOrigin + performance.now();
  const body = JSON.stringify({ messages, stream: true, max_tokens: maxTokens, seed: 1 });
  const headers = { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(body) };
  return new Promise((resolve, reject) => {
    const reading: QuestionReading = { sent: clock(), firstText: Number.NaN, text: '' };
    const asked = request(`${url}/v1/chat/completions`, { method: 'POST', agent, headers }, (response) => {
      let whole = '';
      response.setEncoding('utf8');
      response.on('data', (piece: string) => {
        if (Number.isNaN(reading.firstText) && /"content":"[^"]/.test(piece)) reading.firstText = clock();
        whole += piece;
      });
      response.on('end', () => {
        for (const [, content] of whole.matchAll(/"content":("(?:[^"\\]|\\.)*")/g))
          reading.text += JSON.parse(content as string);
        resolve(reading);
      });
    });
    asked.on('error', reject);
    asked.end(body);
  });
}

process.on('message', async ({ load, question }: { load?: Load; question?: Question }) => {
  if (load !== undefined) process.send?.(await run(load));
  if (question !== undefined) process.send?.(await ask(question));
});
