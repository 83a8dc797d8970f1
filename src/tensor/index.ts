/** The engine: tensors over libtorch. Everything that other folders use of src/tensor is exported here. */
import './conversions.ts';
import './format.ts';
import './indexing.ts';
import './methods.ts';

export * from './autograd.ts';
export type { ConversionTarget } from './conversions.ts';
export * from './creation.ts';
export * from './engine/cuda.ts';
export * from './engine/dtype.ts';
export { TensorError } from './engine/error.ts';
export * from './engine/generator.ts';
export { keep, liveBytes, liveTensors, scope } from './engine/lifetime.ts';
export { type CudaDevice, type CudaMemory, cpuFlags, openblasCoreType, packageRoot } from './engine/native.ts';
export * from './flash.ts';
export * from './functional.ts';
export type { Index } from './indexing.ts';
export type { Operand, Scalar } from './methods.ts';
export { aten, BoundOperator, findOperator } from './operator.ts';
export * from './runtime.ts';
export * from './safetensors/safetensors.ts';
export { Tensor } from './tensor.ts';
