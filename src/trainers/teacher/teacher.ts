/**
 * The teacher of a distillation: a frozen model beside the trained one, with the same tokenizer.
 *
 *     const { bytes } = await checkTeacher(config, student, { progress });          // by its files alone, for plans
 *     const teacher = await openTeacher(config, model, tokenizer, { progress });
 */
import { UserError } from '../../errors.ts';
import { isSameModel } from '../../hub/place.ts';
import { checkQuantType } from '../../models/files/decoder.ts';
import { tokenDifference } from '../../models/files/tokenizer.ts';
import { inspectModel, loadModel, loadTokenizer, type Model } from '../../models/index.ts';
import type { Progress } from '../../progress.ts';
import { divergenceBytes } from '../../tensor/functional.ts';
import { type Device, type DType, dtypeBytes } from '../../tensor/index.ts';
import type { Tokenizer } from '../../text/index.ts';
import { rewardModelAsPolicy } from '../policy-model.ts';
import type { TeacherConfig } from './options.ts';

/** What a teacher's files say about it. */
export interface FoundTeacher {
  /** Bytes of its weights once loaded. */
  bytes: number;
  hiddenSize: number;
  /** The longest sequence that it can read. */
  positions: number;
}

/** The memory of a teacher, in bytes by name: its weights, and the comparison of this many tokens at a time. */
export function teachingMemory(
  { bytes, hiddenSize }: FoundTeacher,
  { vocabSize, dtype, device }: Pick<Student, 'vocabSize' | 'dtype' | 'device'>,
  tokens: number,
): Record<string, number> {
  const states = 2 * tokens * hiddenSize * dtypeBytes[dtype];
  return { teacher: bytes, 'comparison with it': states + divergenceBytes(tokens, vocabSize, device) };
}

/** The model that learns from the teacher. */
export interface Student {
  tokenizer: Tokenizer;
  vocabSize: number;
  dtype: DType;
  device: Device;
}

export interface TeachingOptions {
  progress?: Progress;
  /** Whether a model may be its own teacher. */
  mayBeStudent?: boolean;
}

type Named = TeacherConfig & { teacher: string };

export const hasTeacher = <Config extends TeacherConfig>(config: Config): config is Config & Named =>
  config.teacher !== undefined;

/**
 * Checks a teacher by its config and tokenizer alone. Refuses a reward model, a model with another tokenizer, one
 * stored in another quantisation, and the trained model itself.
 */
export async function checkTeacher(
  config: Named,
  { tokenizer, vocabSize: wanted, dtype, device }: Student,
  { progress, mayBeStudent = false }: TeachingOptions,
): Promise<FoundTeacher> {
  const { teacher, teacherQuantType: quantType } = config;
  const found = await inspectModel(teacher, { dtype, device, progress, configOnly: true });
  if (found.head !== null) throw await rewardModelAsPolicy(teacher, '--teacher');
  checkQuantType(teacher, found.quantised, quantType);
  const isPlain = quantType === undefined && config.quantType === undefined && config.fromConfig === undefined;
  if (isPlain && !mayBeStudent && (await isSameModel(teacher, config.model)))
    throw new UserError(
      `--teacher ${teacher} is the model that is trained: it has nothing to learn from itself. Name a better one.`,
    );
  // A folder with weights only has no tokenizer.
  const own = await loadTokenizer(teacher, progress).catch((error: Error) => {
    progress
      ?.start('teacher')
      .done(`has no tokenizer that can be compared, only the number of its tokens: ${error.message}`);
  });
  const difference = own && tokenDifference(tokenizer, own);
  if (difference !== undefined)
    throw new UserError(
      `--teacher ${teacher} has another tokenizer than the model that is trained: ${difference}. Their distributions cannot be compared token by token.`,
    );
  checkSizes(teacher, [wanted, found.vocabSize], [tokenizer, ...(own === undefined ? [] : [own])]);
  const { memory, hiddenSize, contextTokens: positions } = found;
  const bytes = quantType === undefined ? memory.loadBytes : memory.quantisedBytes[quantType];
  return { bytes, hiddenSize, positions };
}

/** The larger models of a family may pad their heads with more rows that stand for no token. */
function checkSizes(teacher: string, sizes: [own: number, teachers: number], tokenizers: readonly Tokenizer[]): void {
  const [own, teachers] = sizes;
  const isPadded = teachers > own && tokenizers.length > 1 && tokenizers.every(({ vocabSize }) => vocabSize <= own);
  if (own === teachers || isPadded) return;
  throw new UserError(
    `--teacher ${teacher} has ${teachers} tokens, the model that is trained ${own}: they cannot be compared token by token.`,
  );
}

/** Checks and loads the teacher of a student, frozen. */
export async function openTeacher(
  config: Named,
  student: Model,
  tokenizer: Tokenizer,
  options: TeachingOptions = {},
): Promise<Model> {
  const { teacher: name, teacherQuantType: quantType } = config;
  const { dtype, device, spec } = student.decoder;
  const { progress } = options;
  await checkTeacher(config, { tokenizer, vocabSize: spec.vocabSize, dtype, device }, options);
  const teacher = await loadModel(name, { dtype, device, quantType, progress });
  // For a hub model the head is known only once the weights are downloaded.
  if (teacher.head !== null) {
    teacher.dispose();
    throw await rewardModelAsPolicy(name, '--teacher');
  }
  teacher.train(false);
  teacher.decoder.requiresGrad_(false);
  return teacher;
}
