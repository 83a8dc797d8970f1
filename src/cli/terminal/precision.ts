/** Says that `--precision fast` had no effect on scores. */
import type { Precision } from '../../models/index.ts';
import { tell } from './print.ts';

export function tellIfExact(asked: Precision | undefined, used: Precision): void {
  if (asked === 'fast' && used === 'exact')
    tell(
      '--precision fast: the scores are exact; fast is for a model in 8 bits (--quant-type int8) in bfloat16 on a GPU of compute capability 9.0 (H100, H200)',
    );
}
