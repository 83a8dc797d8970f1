/** Devices and dtypes by their names in a config or on the command line. */
import { checkArgument } from '../../arguments.ts';
import { UserError } from '../../errors.ts';
import { type Device, type DType, defaultDevice, isDevice, isFloating, missingDevice } from '../../tensor/index.ts';

/** The device of a name. `auto` is the first GPU if there is one, else the CPU. */
export function deviceOf(name: string): Device {
  if (name === 'auto') return defaultDevice();
  const device = name === 'cuda' ? 'cuda:0' : name;
  if (!isDevice(device)) throw new UserError(`There is no device "${name}": take auto, cpu, cuda or cuda:N.`);
  checkDevice(name as Device);
  return device as Device;
}

/** Refuses a GPU that does not exist. */
export function checkDevice(device: Device): void {
  const missing = missingDevice(device);
  if (missing !== undefined) throw new UserError(missing);
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
