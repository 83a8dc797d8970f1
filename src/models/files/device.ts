/** Devices and dtypes by their names in a config or on the command line. */
import { checkArgument } from '../../arguments.ts';
import { UserError } from '../../errors.ts';
import {
  cudaCount,
  type Device,
  type DType,
  defaultDevice,
  isDevice,
  isFloating,
  libtorchHasCuda,
} from '../../tensor/index.ts';

/** The device of a name. `auto` is the first GPU where there is one, else the CPU. */
export function deviceOf(name: string): Device {
  if (name === 'auto') return defaultDevice();
  const device = name === 'cuda' ? 'cuda:0' : name;
  if (!isDevice(device)) throw new UserError(`There is no device "${name}": take auto, cpu, cuda or cuda:N.`);
  checkDevice(device as Device, name);
  return device as Device;
}

/** Refuses a GPU that is not there; `name` is what was asked for. */
export function checkDevice(device: Device, name: string = device): void {
  if (!device.startsWith('cuda')) return;
  const { count, built } = gpus();
  const index = Number(device.split(':')[1] ?? 0);
  if (index < count) return;
  const missing = built
    ? count === 0
      ? 'libtorch finds no GPU. Take cpu, or mend the driver'
      : `there ${count === 1 ? 'is one GPU, cuda:0' : `are ${count} GPUs, cuda:0 to cuda:${count - 1}`}. Take one of them`
    : 'this libtorch is built without CUDA. Take cpu, or name one with CUDA by the variable ATTUNE_LIBTORCH';
  throw new UserError(`The device "${name}" was asked for, but ${missing} (attune doctor shows what was found).`);
}

/** How many GPUs there are, and whether libtorch could use one. */
function gpus(): { count: number; built: boolean } {
  const count = cudaCount();
  return { count, built: count > 0 || libtorchHasCuda() };
}

/** The dtype of a name. `auto` is bfloat16 on a GPU and float32 on a CPU. */
export function dtypeOf<Name extends DType>(name: 'auto' | Name, device: Device): Name | 'float32' | 'bfloat16' {
  if (name !== 'auto') {
    checkArgument('dtype', name, {
      fits: (value) => isFloating(value as DType),
      wanted: 'auto or a floating-point dtype',
    });
    return name as Name;
  }
  return device === 'cpu' ? 'float32' : 'bfloat16';
}
