/** What the numbers mean, in a few sentences each: what it is, what is normal, what to do when it is not. */
export interface Term {
  title: string;
  text: string[];
}

const terms: Record<string, Term> = {
  accuracy: {
    title: 'Accuracy',
    text: [
      'The share of responses that a verifier found right. On held-out prompts (orange) it is measured on questions that are never trained on, and is the number to judge a run by.',
      'With 100 held-out prompts the uncertainty is about ±10 percentage points: a single point up or down means nothing, the trend does.',
    ],
  },
  reward: {
    title: 'Reward',
    text: [
      'What the responses earned on average, before or after penalties. It is what training pushes up, and it is only as good as its source: a verifier (green) knows the answer, a reward model (purple) guesses.',
      'A reward model’s reward that rises while held-out accuracy falls is over-optimisation: the policy has found what the model likes, not what is right.',
    ],
  },
  score: {
    title: 'Score',
    text: ['The reward as its source gave it, before penalties for length or a missing end.'],
  },
  advantage: {
    title: 'Advantage',
    text: [
      'How much better a response was than expected: than the other responses to the same prompt (GRPO, RLOO) or than the critic’s value (PPO). Positive: its tokens become more likely. Negative: less likely. Zero: the response teaches nothing.',
      'All zero in a group means that all its responses earned the same.',
    ],
  },
  kl: {
    title: 'KL to the reference',
    text: [
      'How far the policy has moved from the model it began as, in nats per token of what it writes itself. It starts at 0 and grows as the policy learns; growth alone is no fault.',
      'Sudden growth means that it is leaving the text that the reference (and a reward model) knows. A higher --kl-coef or a lower --lr holds it back.',
    ],
  },
  teacher_kl: {
    title: 'KL to the teacher',
    text: [
      'How far the next-token distributions are from the teacher’s, in nats per token: 0 is the teacher, and distillation pushes it down. Supervised fine-tuning takes KL(teacher‖model) on the text, on-policy distillation KL(policy‖teacher) on what the policy writes itself; by advantage that is estimated from the sampled tokens and may be below 0 in a step.',
      'A KL that stays where it is wants a higher --lr or a student that can do what the teacher does.',
    ],
  },
  teacher_agreement: {
    title: 'Agreement with the teacher',
    text: ['The share of the tokens written that are also the teacher’s likeliest.'],
  },
  teacher_logprob: {
    title: 'Teacher’s log-prob',
    text: ['The mean log-prob that the teacher gives the tokens that the policy wrote.'],
  },
  nll: {
    title: 'Loss on the text',
    text: [
      'The mean of −log p of the text’s own tokens. Beside a teacher it is measured, and learnt from with a --distill-share below 1. It may rise while the KL falls: the teacher would have written something else.',
    ],
  },
  old_kl: {
    title: 'KL to the sampler',
    text: [
      'How far the weights have moved since the responses of this step were sampled. Near 0 with one update per step; larger with several. --target-kl ends a step’s updates when it grows too large.',
    ],
  },
  entropy: {
    title: 'Entropy',
    text: [
      'How undecided the policy is about its next token, in nats. It falls as the policy learns. If it comes close to 0 early, all responses to a prompt are the same, groups have no spread, and learning stops.',
      'Against collapse: --entropy-coef, a higher --clip-high, a higher temperature or a lower --lr.',
    ],
  },
  clip_fraction: {
    title: 'Clip fraction',
    text: [
      'The share of tokens whose probability had already changed so much since sampling that the clip took their gradient away. 0 is normal with one update per step, because the ratio is then exactly 1.',
      'A few per cent is usual with several updates. Above about 20 % the updates are too large.',
    ],
  },
  ratio: {
    title: 'Ratio',
    text: [
      'Probability of a token under the current weights divided by that under the weights that sampled it. 1: nothing has changed yet. Clipping keeps it near 1.',
    ],
  },
  grad_norm: {
    title: 'Gradient norm',
    text: [
      'The length of the gradient before clipping. Its level depends on the model and the loss and says little; its shape does: a steady level is healthy, growing spikes announce divergence.',
      'Above --max-grad-norm the gradient is scaled down to it, so a peak does not mean a large step.',
    ],
  },
  loss: {
    title: 'Loss',
    text: [
      'Of sft, reward and preference training: lower is better, and held-out loss that rises while training loss falls is overfitting.',
      'Of a policy it tells nothing about learning: advantages have mean 0, so the loss stays near 0 while its gradient does not. Look at reward and held-out accuracy.',
    ],
  },
  lr: {
    title: 'Learning rate',
    text: ['The size of the optimiser’s steps as scheduled: warm-up, then constant or falling.'],
  },
  zero_spread: {
    title: 'Groups without spread',
    text: [
      'The share of prompts whose responses all earned the same. Such a group gives no gradient: its compute is thrown away. All right: the prompts are too easy by now. All wrong: too hard, unless the run did better before.',
    ],
  },
  ended: {
    title: 'Ended by itself',
    text: [
      'The share of responses that ended on their own. The rest were cut at --max-new-tokens and pay the EOS penalty.',
    ],
  },
  length: {
    title: 'Response length',
    text: [
      'Tokens per response. Growth together with accuracy is thinking; growth alone means that length itself is being rewarded.',
    ],
  },
  margin: {
    title: 'Margin',
    text: [
      'The distance between the chosen and the rejected response’s (implicit) reward. It should grow. A margin that grows because both fall means that the chosen answers become less likely too.',
    ],
  },
  logprob: {
    title: 'Log-prob',
    text: [
      'The natural logarithm of the probability that the policy gave this token when it sampled it: 0 is certain, −0.7 is one in two, −4.6 one in a hundred.',
    ],
  },
  samplerGap: {
    title: 'Sampler gap',
    text: [
      'The mean difference between the sampler’s log-probs and those that the trainer computes for the same tokens. It should be rounding (1e-6 in f32, about 1e-2 in bf16): more would mean learning from the wrong probabilities.',
    ],
  },
  interval: {
    title: '95 % interval',
    text: [
      'If the votes were repeated many times, 95 % of such intervals would hold the true share. While it covers 50 %, neither model is shown to be better.',
    ],
  },
};

const synonyms: [RegExp, string][] = [
  [/accuracy|pass_at/, 'accuracy'],
  [/^old_kl$/, 'old_kl'],
  [/^teacher_(response_)?kl$/, 'teacher_kl'],
  [/^teacher_agreement$/, 'teacher_agreement'],
  [/^teacher_logprob$/, 'teacher_logprob'],
  [/^nll$/, 'nll'],
  [/(^|_)kl(_|$)/, 'kl'],
  [/entropy/, 'entropy'],
  [/clip_fraction|clipped/, 'clip_fraction'],
  [/ratio/, 'ratio'],
  [/grad_norm/, 'grad_norm'],
  [/zero_spread/, 'zero_spread'],
  [/^ended$/, 'ended'],
  [/length/, 'length'],
  [/margin/, 'margin'],
  [/advantage/, 'advantage'],
  [/sampler_gap/, 'samplerGap'],
  [/^score$/, 'score'],
  [/reward/, 'reward'],
  [/loss/, 'loss'],
  [/^lr$/, 'lr'],
];

/** The explanation of a term or of a metric by its name (`train/old_kl`). */
export function termOf(name: string): Term | undefined {
  const own = terms[name];
  if (own) return own;
  const bare = name.slice(name.indexOf('/') + 1);
  const found = synonyms.find(([pattern]) => pattern.test(bare));
  return found && terms[found[1]];
}
