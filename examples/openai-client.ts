/**
 * OpenAI's own client against `attune serve`: models, a chat, a stream, JSON that follows a schema, and an error.
 *
 *     npm run attune -- serve models/tiny
 *     npm run example -- openai-client [--url http://127.0.0.1:8000/v1]
 */
import { parseArgs } from 'node:util';
import OpenAI from 'openai';

const { values } = parseArgs({ options: { url: { type: 'string', default: 'http://127.0.0.1:8000/v1' } } });
// The server asks for a key only if it was started with --api-key-env. The client always wants one.
const client = new OpenAI({ baseURL: values.url, apiKey: process.env.ATTUNE_API_KEY ?? 'none' });

const [model] = (await client.models.list()).data.map(({ id }) => id);
if (model === undefined) throw new Error('The server offers no model.');
console.log(`model: ${model}`);

const messages = [{ role: 'user' as const, content: 'Spell "abu" backward. Answer with one word.' }];
const made = await client.chat.completions.create({ model, messages, temperature: 0, max_completion_tokens: 64 });
console.log(`chat: ${made.choices[0]?.message.content} (${made.usage?.completion_tokens} tokens)`);

process.stdout.write('stream: ');
const stream = await client.chat.completions.create({
  model,
  messages,
  seed: 7,
  max_completion_tokens: 64,
  stream: true,
});
for await (const chunk of stream) process.stdout.write(chunk.choices[0]?.delta.content ?? '');
process.stdout.write('\n');

// Constrained decoding: only tokens that keep to the schema can be sampled.
const schema = {
  type: 'object',
  properties: { word: { type: 'string', maxLength: 8 }, letters: { type: 'integer' } },
  required: ['word', 'letters'],
  additionalProperties: false,
};
const shaped = await client.chat.completions.create({
  ...{ model, messages, seed: 1, max_completion_tokens: 200 },
  response_format: { type: 'json_schema', json_schema: { name: 'answer', schema, strict: true } },
});
console.log('json:', JSON.parse(shaped.choices[0]?.message.content ?? ''));

try {
  await client.chat.completions.create({ model: 'no-such-model', messages });
} catch (error) {
  if (!(error instanceof OpenAI.APIError)) throw error;
  console.log(`error: ${error.status} ${error.code}`);
}
