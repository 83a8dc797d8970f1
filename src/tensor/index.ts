/** The engine: tensors over libtorch, their gradients, devices and safetensors files. */
import './conversions.ts';
import './format.ts';
import './indexing.ts';
import './methods.ts';

export * from './autograd.ts';
export type { ConversionTarget } from './conversions.ts';
export * from './creation.ts';
export * from './engine/cuda.ts';
export { type Device, type DType, dtypeBytes, isDevice, isFloating, type TypedArray } from './engine/dtype.ts';
export { TensorError } from './engine/error.ts';
export { freeBytes } from './engine/free-memory.ts';
export * from './engine/generator.ts';
export { keep, liveBytes, liveTensors, scope } from './engine/lifetime.ts';
export type { CudaDevice, CudaMemory } from './engine/native.ts';
export { isRecorded, type Recorded, Recorder } from './engine/recording.ts';
export {
  addRmsNorm,
  type DivergenceOptions,
  dropout,
  embedding,
  gelu,
  type HeadRows,
  layerNorm,
  linear,
  linearDivergence,
  linearLogprob,
  rmsNorm,
} from './functional.ts';
export type { Index } from './indexing.ts';
export type { Operand, Scalar } from './methods.ts';
export { aten, findOperator } from './operator.ts';
export * from './runtime.ts';
export {
  Checkpoint,
  openSafetensors,
  SafetensorsError,
  SafetensorsFile,
  type TensorInfo,
  writeSafetensors,
} from './safetensors/safetensors.ts';
export { Tensor } from './tensor.ts';
