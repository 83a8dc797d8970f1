/** POST /v1/completions: continues a prompt. */
import { randomUUID } from 'node:crypto';
import type { SampledResponse } from '../models/index.ts';
import { StopText } from '../models/text/stop-text.ts';
import type { Tokenizer } from '../text/index.ts';
import { finishReason, type Usage, usageOf } from './chat.ts';
import type { EventStream } from './http.ts';
import type { CompletionRequest } from './protocol.ts';
import type { ServedModel } from './registry.ts';
import { completionPrompts, samplerRequest, stopsOf, submit } from './requests.ts';

/** OpenAI's default for completions. */
const defaultTokens = 16;

async function ask(served: ServedModel, request: CompletionRequest, gone: AbortSignal) {
  const limited = { ...request, max_tokens: request.max_tokens ?? defaultTokens };
  const prompts = await completionPrompts(served, limited);
  const top = request.logprobs == null ? {} : { topLogprobs: request.logprobs };
  // All or none: of a list that does not fit, nothing is written for nobody.
  const requests = prompts.map((prompt) => samplerRequest(served, prompt, limited, top));
  served.sampler.checkQueue(requests.length * (request.n ?? 1));
  const submissions = requests.map((each) => submit(served, each, gone));
  const head = {
    id: `cmpl-${randomUUID()}`,
    object: 'text_completion',
    created: Math.floor(Date.now() / 1000),
    model: served.name,
  };
  return { submissions, head, promptTokens: prompts.reduce((sum, { length }) => sum + length, 0) };
}

export async function completion(served: ServedModel, request: CompletionRequest, gone: AbortSignal) {
  const { submissions, head, promptTokens } = await ask(served, request, gone);
  const done = (await Promise.all(submissions.map(({ responses }) => responses))).flat();
  const choices = done.map((response, index) => ({
    index,
    text: response.text ?? '',
    logprobs: request.logprobs == null ? null : logprobsOf(served.tokenizer, response),
    finish_reason: finishReason(response.finish),
  }));
  return {
    ...head,
    choices,
    usage: usageOf(
      promptTokens,
      done.reduce((sum, { ids }) => sum + ids.length, 0),
    ),
  };
}

export async function streamCompletion(
  served: ServedModel,
  request: CompletionRequest,
  gone: AbortSignal,
  open: () => EventStream,
): Promise<Usage> {
  const { submissions, head, promptTokens } = await ask(served, request, gone);
  const stream = open();
  const samples = request.n ?? 1;
  const chunk = (index: number, text: string, finish: string | null) =>
    JSON.stringify({ ...head, choices: [{ index, text, logprobs: null, finish_reason: finish }] });
  const counts = await Promise.all(
    submissions.map(async (submission, prompt) => {
      const texts = Array.from({ length: samples }, () => ({
        decoder: served.tokenizer.stream({ skipSpecialTokens: true }),
        stop: new StopText(stopsOf(request)),
      }));
      for await (const tokens of submission.batches()) {
        stream.began();
        const pieces = new Array<string>(samples).fill('');
        for (const { sample, id } of tokens) {
          const text = texts[sample];
          if (text !== undefined) pieces[sample] += text.stop.push(text.decoder.push(id));
        }
        await stream.send(
          pieces.flatMap((piece, sample) => (piece === '' ? [] : [chunk(prompt * samples + sample, piece, null)])),
        );
        if (!stream.open) break;
        await stream.turn(submission.responses);
      }
      const responses = await submission.responses;
      await stream.send(
        responses.map(({ finish }, sample) => {
          const text = texts[sample];
          const rest = text === undefined ? '' : text.stop.push(text.decoder.flush()) + text.stop.flush();
          return chunk(prompt * samples + sample, rest, finishReason(finish));
        }),
      );
      return responses.reduce((sum, { ids }) => sum + ids.length, 0);
    }),
  );
  const usage = usageOf(
    promptTokens,
    counts.reduce((sum, count) => sum + count, 0),
  );
  stream.end(request.stream_options?.include_usage ? [JSON.stringify({ ...head, choices: [], usage })] : []);
  return usage;
}

function logprobsOf(tokenizer: Tokenizer, { ids, logprobs, topLogprobs }: SampledResponse) {
  const tokens = ids.map((id) => tokenizer.decode([id]));
  let offset = 0;
  return {
    tokens,
    token_logprobs: Array.from(logprobs),
    top_logprobs: (topLogprobs ?? []).map((top) =>
      Object.fromEntries(top.map(({ id, logprob }) => [tokenizer.decode([id]), logprob])),
    ),
    text_offset: tokens.map((token) => {
      const at = offset;
      offset += token.length;
      return at;
    }),
  };
}
