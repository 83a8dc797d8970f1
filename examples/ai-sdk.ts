/**
 * The AI SDK against `attune serve`: text, a stream, and an object that follows a schema.
 *
 *     npm run attune -- serve models/tiny
 *     npm run example -- ai-sdk [--url http://127.0.0.1:8000/v1] [--model tiny]
 */
import { parseArgs } from 'node:util';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, jsonSchema, Output, streamText } from 'ai';

const { values } = parseArgs({
  options: { url: { type: 'string', default: 'http://127.0.0.1:8000/v1' }, model: { type: 'string', default: 'tiny' } },
});
const attune = createOpenAICompatible({ name: 'attune', baseURL: values.url, supportsStructuredOutputs: true });
const model = attune(values.model);
const prompt = 'Spell "abu" backward. Answer with one word.';

const { text, usage } = await generateText({ model, prompt, temperature: 0, maxOutputTokens: 64 });
console.log(`text: ${text} (${usage.outputTokens} tokens)`);

process.stdout.write('stream: ');
const { textStream } = streamText({ model, prompt, seed: 7, maxOutputTokens: 64 });
for await (const piece of textStream) process.stdout.write(piece);
process.stdout.write('\n');

interface Answer {
  word: string;
  letters: number;
}
const schema = jsonSchema<Answer>({
  type: 'object',
  properties: { word: { type: 'string', maxLength: 8 }, letters: { type: 'integer' } },
  required: ['word', 'letters'],
  additionalProperties: false,
});
const { output } = await generateText({
  model,
  prompt,
  seed: 1,
  maxOutputTokens: 200,
  output: Output.object({ schema }),
});
console.log('object:', output);
