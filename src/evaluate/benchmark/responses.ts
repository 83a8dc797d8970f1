/** Questions that the model answers in its own words, with greedy and sampled responses from one sampler. */
import { dealByCost } from '../../dist/deal.ts';
import { joinWorld } from '../../dist/world.ts';
import { type GenerationRequest, type SampledResponse, Sampler } from '../../models/index.ts';
import { rolloutSeeds } from '../../rollouts/rollout.ts';
import { stripThinking } from '../../text/index.ts';
import { followed, isCheckable } from '../instructions/follow.ts';
import type { Suite } from '../suites/open.ts';
import type { AnswerFormat, AnswerQuestion, InstructionQuestion } from '../suites/question.ts';
import { type Answered, type AskingOptions, type Outcome, type Player, type Written, writePrompts } from './asking.ts';
import { QuestionWriter } from './prompts.ts';
import { voteScores } from './votes.ts';

/** A response's text without its thinking, and whether it ended by itself. */
interface Response {
  text: string;
  whole: string;
  ended: boolean;
  tokens: number;
}

/** Asks the questions of a suite with written answers. */
export async function askByWriting(suite: Suite, player: Player, options: AskingOptions): Promise<Answered> {
  const writer = new QuestionWriter(suite.format, player.tokenizer, options.style);
  const { maxPositions } = player.model.decoder.spec;
  // A model's context may be too short for the requested response. At least half of it is left for the prompt.
  const room = Math.min(options.maxNewTokens, Math.ceil(maxPositions / 2));
  const { written, shortened, tooLong } = await writePrompts(suite, player, writer, () => room, options);
  const asked = written.filter((prompt) => prompt !== undefined);
  const responses = await generated(player, asked, room, stopsOf(suite, options), options);
  let at = 0;
  const outcomes = suite.questions.map((question, i): Outcome => {
    const prompt = written[i];
    const own = prompt === undefined ? { greedy: nothing, sampled: [] } : (responses[at++] as Responses);
    const judged =
      question.kind === 'instructions'
        ? judgeInstructions(question, own)
        : judgeAnswer(suite.format as AnswerFormat, question as AnswerQuestion, own, options);
    return { ...judged, sample: { prompt: prompt?.text ?? null, ...judged.sample } };
  });
  return { outcomes, shortened, tooLong, cutOff: responses.filter(({ greedy }) => !greedy.ended).length };
}

interface Responses {
  greedy: Response;
  sampled: Response[];
}

const nothing: Response = { text: '', whole: '', ended: false, tokens: 0 };

const stopsOf = ({ format }: Suite, { style, stop }: AskingOptions) => [...(style.chat ? [] : format.stop), ...stop];

/**
 * Greedy and sampled responses to all prompts, dealt over the ranks. Each rank samples its share in one call, so that
 * no slot of the sampler stays idle. A prompt's seed is that of its place in the suite.
 */
async function generated(
  { model, tokenizer }: Player,
  prompts: readonly Written[],
  maxNewTokens: number,
  stopStrings: readonly string[],
  { samples, temperature, topP, cacheDtype, seed, progress, signal }: AskingOptions,
): Promise<Responses[]> {
  const world = await joinWorld();
  const places = dealByCost(
    prompts.map(({ ids }) => ids.length + maxNewTokens),
    world.size,
  )[world.rank] as number[];
  using sampler = new Sampler(model, { tokenizer, cacheDtype });
  const common = { maxNewTokens, stopStrings, stopIds: tokenizer.eosIds };
  const seeds = rolloutSeeds(seed, 'benchmark');
  const requests = places.flatMap((place): GenerationRequest[] => {
    const { ids: prompt } = prompts[place] as Written;
    return [
      { ...common, prompt, temperature: 0 },
      ...(samples === 0 ? [] : [{ ...common, prompt, samples, temperature, topP, seed: seeds(place) }]),
    ];
  });
  const found = await sampler.generate(requests, { signal, progress });
  signal?.throwIfAborted();
  const each = samples === 0 ? 1 : 2;
  const own = places.map((place, i) => ({
    place,
    greedy: responseOf((found[i * each] as SampledResponse[])[0] as SampledResponse),
    sampled: samples === 0 ? [] : (found[i * each + 1] as SampledResponse[]).map(responseOf),
  }));
  // Response lengths vary, so a rank may finish long before another.
  await world.meet('responses');
  return (await world.gather(own)).flat().sort((a, b) => a.place - b.place);
}

const responseOf = ({ text = '', finish, ids }: SampledResponse): Response => ({
  text: stripThinking(text),
  whole: text,
  ended: finish === 'stop',
  tokens: ids.length,
});

/** Judges an answer by strict and by lenient extraction, separately. */
function judgeAnswer(
  format: AnswerFormat,
  { answer, subject }: AnswerQuestion,
  { greedy, sampled }: Responses,
  { k }: AskingOptions,
): Outcome {
  const known = format.form(answer);
  const vote = (found: string | undefined) => {
    const form = found === undefined ? undefined : format.form(found);
    return { answer: form, right: form === known };
  };
  const ways = {
    strict: (response: string) => vote(format.strict(response)),
    lenient: (response: string) => vote(format.lenient(response, answer)),
  };
  const scores: Record<string, number> = {};
  for (const [name, way] of Object.entries(ways)) scores[name] = Number(way(greedy.text).right);
  for (const [name, way] of Object.entries(ways))
    Object.assign(
      scores,
      voteScores(
        name,
        sampled.map(({ text }) => way(text)),
        k,
      ),
    );
  const shown = (response: Response) => ({
    response: response.whole,
    strict: ways.strict(response.text),
    lenient: ways.lenient(response.text),
    ended: response.ended,
    tokens: response.tokens,
  });
  return {
    scores,
    sample: {
      answer,
      ...(subject !== undefined && { subject }),
      greedy: shown(greedy),
      ...(sampled.length > 0 && { sampled: sampled.map(shown) }),
    },
  };
}

/** IFEval: whether all instructions of a prompt are followed (prompt level), and the share of instructions followed. */
function judgeInstructions({ instructions }: InstructionQuestion, { greedy }: Responses): Outcome {
  const checkable = instructions.filter(isCheckable);
  const { strict, loose } = followed(checkable, greedy.text);
  const all = (list: readonly boolean[]) => Number(list.every(Boolean));
  const share = (list: readonly boolean[]) => list.filter(Boolean).length / list.length;
  const parts = checkable.length;
  return {
    scores: {
      prompt_strict: all(strict),
      instruction_strict: share(strict),
      prompt_loose: all(loose),
      instruction_loose: share(loose),
    },
    weights: { instruction_strict: parts, instruction_loose: parts },
    sample: {
      response: greedy.whole,
      ended: greedy.ended,
      tokens: greedy.tokens,
      instructions: checkable.map(({ id }, i) => ({ id, strict: strict[i], loose: loose[i] })),
    },
  };
}
