/**
 * GRPO (Shao et al. 2024) from scratch, on attune's public API. It samples a group of responses to each prompt, rewards
 * them, standardises the rewards within the group, and updates the policy on the clipped surrogate with a KL term to
 * its start.
 *
 *     npm run example -- grpo [--model models/tiny] [--task spell_backward:1] [--steps 60] [--out grpo.png]
 *
 * It trains the tiny chat model to spell words backward, prints held-out accuracy before and after, and draws the
 * curve.
 */
import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { lineChart, toPng } from 'attune';
import { loadModel, loadTokenizer, type PromptedResponse, packResponses, Sampler, tokenLogprobs } from 'attune/models';
import { AdamW, clipGradNorm } from 'attune/nn';
import { type Example, mixture, task } from 'attune/tasks';
import { noGrad, scope, type Tensor, tensor } from 'attune/tensor';
import { ChatFormat } from 'attune/text';

const { values: flags } = parseArgs({
  options: {
    model: { type: 'string', default: 'models/tiny' },
    task: { type: 'string', default: 'spell_backward:1' },
    steps: { type: 'string', default: '60' },
    out: { type: 'string', default: 'grpo.png' },
  },
});
const steps = Number(flags.steps);
const [promptsPerStep, groupSize, maxNewTokens] = [8, 8, 64];
const [lr, clip, beta, temperature, seed] = [3e-5, 0.2, 0.01, 1, 42];

const tokenizer = await loadTokenizer(flags.model);
const policy = await loadModel(flags.model, { dtype: 'float32' });
const reference = await loadModel(flags.model, { dtype: 'float32' });
const sampler = new Sampler(policy, { tokenizer });
const optimizer = new AdamW(policy.decoder.requiresGrad_().parameters(), { lr });
const problems = mixture(flags.task);
const chat = new ChatFormat(tokenizer);

interface Rollout extends PromptedResponse {
  /** log π of each response token under the policy that sampled it. */
  lpOld: Float32Array;
  lpRef: number[];
  reward: number;
  advantage: number;
}

const encode = (problem: Example) => tokenizer.encode(chat.prompt([{ role: 'user', content: problem.prompt }]));

/** Samples responses. The reward is 1 if the task's verifier accepts the answer. */
async function sample(asked: readonly Example[], samples: number, temperature: number, seed: number) {
  const prompts = asked.map(encode);
  const groups = await sampler.generate(
    prompts.map((prompt, i) => ({
      prompt,
      samples,
      maxNewTokens,
      temperature,
      stopIds: tokenizer.eosIds,
      seed: seed + 1000 * i,
    })),
  );
  return groups.map((group, i) => {
    const problem = asked[i] as Example;
    const prompt = prompts[i] as ArrayLike<number>;
    return group.map(({ ids, logprobs, text = '' }): Rollout => {
      const reward = task(problem.task).score(text, problem) === 1 ? 1 : 0;
      const whole = Int32Array.from([...Array.from(prompt), ...ids]);
      return { ids: whole, promptLength: prompt.length, lpOld: logprobs, lpRef: [], reward, advantage: 0 };
    });
  });
}

/** A_i = (R_i − mean) / std over the group; 0 if all rewards are equal. */
function standardise(group: Rollout[]): void {
  const mean = group.reduce((sum, { reward }) => sum + reward, 0) / group.length;
  const variance = group.reduce((sum, { reward }) => sum + (reward - mean) ** 2, 0) / (group.length - 1);
  for (const rollout of group) rollout.advantage = (rollout.reward - mean) / (Math.sqrt(variance) + 1e-8);
}

/** Log-probs of the response tokens under the frozen initial policy. */
function addReference(rollouts: Rollout[]): void {
  const { decoder } = reference;
  const all = scope(() =>
    noGrad(() => {
      const packed = packResponses(rollouts, decoder);
      return tokenLogprobs(decoder, decoder.forward(packed.batch), packed.batch, packed.tokens).logp.numbers();
    }),
  );
  for (const rollout of rollouts) rollout.lpRef = all.splice(0, rollout.lpOld.length);
}

/** One gradient step on −min(rA, clip(r)A) + β·k3, averaged over each response's tokens, then over responses. */
function update(rollouts: Rollout[]): number {
  const { decoder } = policy;
  const perToken = (value: (rollout: Rollout, t: number) => number): Tensor =>
    tensor(Float32Array.from(rollouts.flatMap((rollout) => Array.from(rollout.lpOld, (_, t) => value(rollout, t)))));
  const loss = scope(() => {
    const packed = packResponses(rollouts, decoder);
    const advantages = perToken(({ advantage }) => advantage);
    const weights = perToken(({ lpOld }) => 1 / (lpOld.length * rollouts.length));
    return decoder
      .backward(packed.batch, (hidden) => {
        const lp = tokenLogprobs(decoder, hidden, packed.batch, packed.tokens, temperature).logp;
        const ratio = lp.sub(perToken(({ lpOld }, t) => lpOld[t] as number)).exp();
        const surrogate = ratio.mul(advantages).minimum(ratio.clamp(1 - clip, 1 + clip).mul(advantages));
        const away = perToken(({ lpRef }, t) => lpRef[t] as number).sub(lp); // k3 = e^d − d − 1 with d = lpRef − lp
        const kl = away.expm1().sub(away);
        return kl.mul(beta).sub(surrogate).mul(weights).sum();
      })
      .item();
  });
  clipGradNorm(optimizer.parameters, 1);
  optimizer.step();
  optimizer.zeroGrad();
  return loss;
}

const heldOut = Array.from({ length: 100 }, (_, i) => problems.example(seed, i, { part: 'test' }));
async function accuracy(): Promise<number> {
  const answers = (await sample(heldOut, 1, 0, seed)).flat();
  return answers.reduce((sum, { reward }) => sum + reward, 0) / answers.length;
}

const before = await accuracy();
const curve: number[] = [];
for (let step = 1; step <= steps; step++) {
  const asked = Array.from({ length: promptsPerStep }, (_, i) =>
    problems.example(seed, (step - 1) * promptsPerStep + i, { part: 'train' }),
  );
  const groups = await sample(asked, groupSize, temperature, 1_000_000 * step);
  for (const group of groups) standardise(group);
  const rollouts = groups.flat();
  addReference(rollouts);
  const loss = update(rollouts);
  const reward = rollouts.reduce((sum, rollout) => sum + rollout.reward, 0) / rollouts.length;
  curve.push(reward);
  console.log(`step ${step}  reward ${reward.toFixed(2)}  loss ${loss.toFixed(4)}`);
}
console.log(`held-out accuracy ${before} → ${await accuracy()}`);
const series = [{ name: 'reward', x: curve.map((_, i) => i + 1), y: curve }];
writeFileSync(flags.out, await toPng(lineChart({ title: 'GRPO: mean reward of each step', xLabel: 'step', series })));
