/** Gold and proxy against √KL: reward models on a policy's own responses, the best of n by them, and RL against them. */
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { meanOf } from '../../../src/algorithms/index.ts';
import { loadRewardModel, trainPolicy, trainReward } from '../../../src/index.ts';
import { deviceOf, loadTokenizer } from '../../../src/models/index.ts';
import { openSafetensors, writeSafetensors } from '../../../src/tensor/index.ts';
import {
  ask,
  askFolder,
  finished,
  klTo,
  openPolicy,
  pairsOf,
  quiet,
  type Response,
  rightShare,
  settings,
  watch,
} from '../policies.ts';
import type { Lab, Values } from '../study.ts';

export const tasks = 'number_sorting:1-2,spell_backward:1-2';
export const sizes = [1, 2, 4, 8, 16, 32, 64, 128];
export const most = sizes.at(-1) as number;
/** KL of the best of n to the policy that it is picked from (Hilton 2023). */
export const distances = sizes.map((n) => Math.sqrt(Math.log(n) - (n - 1) / n));
export const lookAt = [4, 8, 16, 24, 32, 48, 64];

export interface Judge {
  pairs: number;
  /** Of the policy's layers, from the first; all of them when left out. */
  layers?: number;
  lr: number;
}

/** Trains a reward model on pairs of the policy's own responses; the same one is asked for by several jobs. */
export function judgeOf(lab: Lab, judge: Judge): Promise<string> {
  const name = `judge-${judge.layers ?? 'all'}-${judge.pairs}-${lab.seed}`;
  return lab.shared(name, (folder) => trainJudge(lab, judge, folder));
}

async function trainJudge(lab: Lab, { layers, pairs: count, lr }: Judge, into: string): Promise<void> {
  const file = join(await lab.shared(`pairs-${lab.seed}`, (folder) => writePairs(lab, folder)), 'pairs.json');
  const pairs = (JSON.parse(readFileSync(file, 'utf8')) as ReturnType<typeof pairsOf>).slice(0, count);
  const model =
    layers === undefined
      ? lab.model
      : await lab.shared(`layers-${layers}`, async (folder) => shallow(lab.model, layers, folder));
  const trained = await finished(
    trainReward(
      {
        ...settings({ ...lab, model }, 'judge'),
        type: 'preference' as const,
        stripThinking: false,
        dataset: pairs,
        batchSize: 32,
        gradAccum: 1,
        lr,
        maxSteps: 80,
        epochs: 200,
        maxLength: 384,
        evalSteps: -1,
        validationSplit: 0,
        analysisSamples: 0,
      },
      { ...quiet, cache: false },
    ),
  );
  cpSync(trained, into, { recursive: true });
}

async function writePairs(lab: Lab, folder: string): Promise<void> {
  const groups = await askFolder(lab.model, { tasks, problems: 900, samples: 6, seed: lab.seed, part: 'train' });
  writeFileSync(join(folder, 'pairs.json'), JSON.stringify(pairsOf(groups)));
}

/** The first layers of a model, under the same final norm and embedding. */
function shallow(model: string, layers: number, folder: string): void {
  mkdirSync(folder, { recursive: true });
  const config = JSON.parse(readFileSync(join(model, 'config.json'), 'utf8'));
  writeFileSync(join(folder, 'config.json'), JSON.stringify({ ...config, num_hidden_layers: layers }));
  for (const file of ['tokenizer.json', 'tokenizer_config.json']) cpSync(join(model, file), join(folder, file));
  const whole = openSafetensors(join(model, 'model.safetensors'));
  const kept = whole.names.filter((name) => Number(name.match(/layers\.(\d+)\./)?.[1] ?? 0) < layers);
  writeSafetensors(
    join(folder, 'model.safetensors'),
    kept.map((name) => [name, whole.tensor(name)] as const),
  );
}

async function scoresOf(checkpoint: string, groups: readonly Response[][]): Promise<number[][]> {
  using scorer = await loadRewardModel(checkpoint, { device: deviceOf('auto') });
  const scores = await scorer.score(
    groups.flat().map(({ problem, text }) => ({ prompt: problem.prompt, response: text })),
  );
  return groups.map((group) => scores.splice(0, group.length));
}

export async function bestOfN(lab: Lab, checkpoint: string): Promise<Values> {
  const asked = { tasks, problems: 48, samples: most, seed: 100 + lab.seed };
  const groups = await askFolder(lab.model, asked);
  return { d: distances, ...bestOf(groups, await scoresOf(checkpoint, groups)) };
}

/** Proxy and gold of the best of n, the mean over all subsets of n of the samples (Nakano et al. 2021, appendix). */
export function bestOf(
  groups: readonly Response[][],
  scores: readonly number[][],
): { proxy: number[]; gold: number[] } {
  const mean = meanOf(scores.flat());
  const spread = Math.sqrt(meanOf(scores.flat().map((score) => (score - mean) ** 2)));
  const ranked = groups.map((group, i) =>
    group
      .map(({ correct }, j) => ({ correct: Number(correct), score: ((scores[i]?.[j] as number) - mean) / spread }))
      .sort((a, b) => b.score - a.score),
  );
  const expected = (n: number, of: 'correct' | 'score') =>
    meanOf(
      ranked.map((group) =>
        chances(group.length, n).reduce((sum, chance, i) => sum + chance * (group[i]?.[of] as number), 0),
      ),
    );
  return { proxy: sizes.map((n) => expected(n, 'score')), gold: sizes.map((n) => expected(n, 'correct')) };
}

/** The chance that the sample of rank i is the best of n drawn without replacement from all: C(N−1−i, n−1) / C(N, n). */
export function chances(all: number, n: number): number[] {
  let chance = n / all;
  return Array.from({ length: all - n + 1 }, (_, i) => {
    const now = chance;
    chance *= (all - n - i) / (all - 1 - i);
    return now;
  });
}

/** RL against a reward model: gold, proxy (in spreads of its scores at the start) and √KL along the way. */
export async function reinforced(lab: Lab, checkpoint: string, lr: number): Promise<Values> {
  using start = await openPolicy(lab.model);
  const tokenizer = await loadTokenizer(lab.model);
  const [d, gold, proxy]: [number[], number[], number[]] = [[0], [], []];
  const asked = { tasks, problems: 64, samples: 4, seed: 100 + lab.seed };
  const before = await ask(start, tokenizer, asked);
  const first = (await scoresOf(checkpoint, before)).flat();
  const mean = meanOf(first);
  const spread = Math.sqrt(meanOf(first.map((score) => (score - mean) ** 2)));
  gold.push(rightShare(before));
  proxy.push(0);
  await watch(
    trainPolicy(
      {
        ...settings(lab, 'rl'),
        task: tasks,
        algorithm: 'rloo',
        verifierReward: false,
        rewardModelPath: checkpoint,
        batchSize: 8,
        gradAccum: 1,
        groupSize: 8,
        lr,
        maxSteps: lookAt.at(-1),
        maxNewTokens: 64,
        klCoef: 0,
        evalSteps: -1,
        evalNumPrompts: 0,
        eosPenalty: 0,
        saveRollouts: false,
        saveModel: false,
      },
      quiet,
    ),
    lookAt,
    async (policy) => {
      const groups = await ask(policy, tokenizer, asked);
      d.push(Math.sqrt(Math.max(0, klTo(start, groups))));
      gold.push(rightShare(groups));
      proxy.push((meanOf((await scoresOf(checkpoint, groups)).flat()) - mean) / spread);
    },
  );
  return { d, gold, proxy };
}
