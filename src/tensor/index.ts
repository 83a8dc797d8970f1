/** The engine: tensors over libtorch. Everything that other folders use of src/tensor is exported here. */
export * from './autograd.ts';
export * from './creation.ts';
export * from './cuda.ts';
export * from './dtype.ts';
export { TensorError } from './error.ts';
export * from './flash.ts';
export * from './functional.ts';
export * from './generator.ts';
export type { Index } from './indexing.ts';
export { keep, liveBytes, liveTensors, scope } from './lifetime.ts';
export type { Operand, Scalar } from './methods.ts';
export { type CudaDevice, type CudaMemory, cpuFlags, openblasCoreType, packageRoot } from './native.ts';
export { aten, BoundOperator, findOperator } from './operator.ts';
export * from './runtime.ts';
export * from './safetensors.ts';
export { isDevice, Tensor } from './tensor.ts';
