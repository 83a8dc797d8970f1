/** Every key of a pipeline's YAML reaches the trainer, is read by the pipeline or is refused; see handed-on.ts. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'vitest';
import { pipelineSchema, preferenceInput, readPipeline } from '../../src/workflows/pipeline/config.ts';
import { planPipeline, startOf } from '../../src/workflows/pipeline/plan.ts';
import { mends, merged, reaches, refused, seen, type Tree, walkHandedOn } from './handed-on.ts';

const models = [{ name: 'a', huggingfaceId: './nowhere' }];
const base = { models, dataset: { name: './nowhere.jsonl' } };
const read = (options: Tree) => readPipeline(merged(base, options)).config;

walkHandedOn('train --config', {
  schema: pipelineSchema,
  derive: (options) => {
    const config = read(options);
    return config.models.map((model) => preferenceInput(config, model, 'cpu'));
  },
  put: (path, value) => {
    const [section, key] = path.split('.') as [string, string?];
    if (section === 'models') return { models: [{ ...models[0], [key as string]: value }] };
    return key === undefined ? { [section]: value } : { [section]: { [key]: value } };
  },
  proofs: {
    'models.name': [reaches('b'), refused('../b', /name of a folder/)],
    'models.huggingfaceId': reaches('./elsewhere'),
    'models.trustRemoteCode': seen(async () => {
      const config = read({ models: [{ ...models[0], trustRemoteCode: true }] });
      expect((await planPipeline(config))[0]?.notes.join()).toMatch(/trust_remote_code/);
    }),
    'dataset.name': reaches('./others.jsonl'),
    'dataset.split': reaches('test'),
    'dataset.subset': reaches('x'),
    'dataset.promptColumn': reaches('q'),
    'dataset.chosenColumn': reaches('good'),
    'dataset.rejectedColumn': reaches('bad'),
    'dataset.completionColumn': reaches('text'),
    'dataset.labelColumn': reaches('liked'),
    'dataset.maxSamples': reaches(7),
    'dataset.validationSplit': reaches(0.3),
    'postTraining.method': reaches('ipo'),
    'postTraining.lossType': [reaches('hinge'), refused('ipo', /contradicts/, { postTraining: { method: 'orpo' } })],
    'postTraining.beta': reaches(0.7),
    'postTraining.labelSmoothing': reaches(0.2),
    'postTraining.lengthNormalize': reaches(true),
    'postTraining.gammaBetaRatio': reaches(2),
    'postTraining.desirableWeight': reaches(3),
    'postTraining.undesirableWeight': reaches(3),
    'postTraining.useRefModel': reaches(false, { lora: { enabled: false } }),
    'postTraining.refModelId': [
      reaches('./other'),
      refused('x', /use_ref_model/, { postTraining: { useRefModel: false } }),
    ],
    'postTraining.refQuantType': [
      reaches('int4'),
      refused('int4', /use_ref_model/, { postTraining: { useRefModel: false } }),
    ],
    'postTraining.refModelUpdateFreq': reaches(3),
    'postTraining.precomputeRef': reaches(true),
    'lora.enabled': reaches(false),
    'lora.quantType': reaches('int4'),
    'lora.r': reaches(3),
    'lora.loraAlpha': reaches(5),
    'lora.loraDropout': reaches(0.5),
    'lora.bias': reaches('all'),
    'lora.targetModules': [reaches(['v_proj']), reaches('all-linear')],
    'lora.taskType': refused('SEQ_CLS', /CAUSAL_LM/),
    'lora.useRslora': reaches(true),
    'lora.useDora': reaches(true),
    'training.outputDir': reaches('./out'),
    'training.numEpochs': reaches(2),
    'training.maxSteps': reaches(9),
    'training.perDeviceTrainBatchSize': reaches(3),
    'training.perDeviceEvalBatchSize': reaches(3),
    'training.gradientAccumulationSteps': reaches(3),
    'training.learningRate': reaches(0.1),
    'training.lrSchedule': reaches('cosine'),
    'training.warmupSteps': reaches(5),
    'training.maxSeqLength': reaches(300),
    'training.maxPromptLength': [reaches(100), refused(600, /no room/)],
    'training.maxCompletionLength': reaches(100),
    'training.loggingSteps': reaches(2),
    'training.saveSteps': reaches(2),
    'training.evalSteps': reaches(2),
    'training.saveTotalLimit': reaches(2),
    'training.fp16': refused(true, /bf16/),
    'training.bf16': reaches(true),
    'training.gradientCheckpointing': reaches(false),
    'training.optim': refused('sgd', /adamw_torch/),
    'training.weightDecay': reaches(0.5),
    'training.maxGradNorm': reaches(0.5),
    'gpu.deviceIds': refused([0, 1], /use_ddp/),
    'gpu.useDdp': mends(true, { gpu: { deviceIds: [0, 1] } }),
    'finetuning.resumeFromCheckpoint': [
      refused('./step-3', /several models/, { models: [models[0], { name: 'b', huggingfaceId: './nowhere' }] }),
      seen(() => {
        const outputDir = mkdtempSync(join(tmpdir(), 'attune-pipeline-'));
        const start = (resumeFromCheckpoint?: string) => {
          const config = read({ training: { outputDir }, finetuning: { resumeFromCheckpoint } });
          return startOf(config, config.models[0] as (typeof config.models)[number]);
        };
        expect(start().kind).toBe('fresh');
        expect(start('./step-3')).toEqual({ kind: 'resume', step: 3, from: './step-3' });
        rmSync(outputDir, { recursive: true });
      }),
    ],
    'finetuning.loadBestModelAtEnd': reaches(false),
    'finetuning.metricForBestModel': [reaches('eval_accuracy'), refused('eval_foo', /is not measured/)],
    'finetuning.greaterIsBetter': reaches(true),
    'finetuning.earlyStoppingPatience': reaches(1),
    'logging.reportTo': reaches(['none']),
    'logging.loggingDir': reaches('./l'),
    'logging.logLevel': refused('loud', /debug/), // what each level tells: src/cli/train-pipeline.test.ts
    'wandb.projectName': reaches('mine'),
    'samples.steps': reaches(3),
    'samples.count': reaches(5),
    'samples.order': reaches('random'),
    'samples.maxNewTokens': reaches(3),
    'samples.temperature': reaches(0.3),
    seed: reaches(7),
  },
});
