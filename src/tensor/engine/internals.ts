/**
 * Which operators `aten()` may call. libtorch's public operators check their arguments. Its internal ones do not: with bad
 * arguments they read and write out of bounds, which ends the process. So they are refused by name, and hostile.test.ts
 * calls every other operator of the registry with garbage.
 *
 *     aten('_reshape_alias', x, [2], [9])     // TensorError: … is internal to libtorch …; use "reshape".
 */
import { TensorError } from './error.ts';
import { native } from './native.ts';

/** Internal by name but allowed: native/door/checks/in_step.cc checks what libtorch does not. */
const CHECKED = /^(_foreach_\w+|_fused_adamw_|_fused_rms_norm)$/;

/**
 * Internal operators by base name or whole name, each with the reason why libtorch does not check its arguments (for
 * the error message).
 */
const INTERNAL: readonly [RegExp, string][] = [
  [/^_/, 'its own code has checked'],
  [/_backward/, 'the forward has checked'],
  [/_forward$/, 'the public operator has checked'],
  [/^(mkldnn|cudnn|miopen)_|_mkldnn/, 'the public operator has checked when it chooses this backend'],
  [
    /^(slow_conv|thnn_conv|conv_depthwise3d|convolution_overrideable|native_channel_shuffle)/,
    'the public operator has checked when it chooses this backend',
  ],
  [/^(quantized|fbgemm)_/, 'its makers of packed weights have made'],
  [
    /^(native_batch_norm|batch_norm_(update_stats|stats|elemt|gather_stats)|choose_qparams)/,
    'its own code has checked',
  ],
  // These apply one argument's sizes, strides, scales or samples to another (libtorch 1.13 to 2.x).
  [/^(histogramdd|rrelu_with_noise|embedding_bag|segment_reduce)/, 'its Python side has checked'],
  [/^(upsample_|fractional_max_pool|fused_moving_avg)/, 'its Python side has checked'],
  [/^(lstm|gru|rnn_tanh|rnn_relu|sparse_(csr|csc|bsr|bsc|compressed)_tensor)$/, 'its Python side has checked'],
  // Sparse tensors are built and multiplied by their lists of indices, which nobody checks.
  [/^(sspaddmm|hspmm|smm|sparse_sampled_addmm|to_sparse_(csr|csc|bsr|bsc))$/, 'its Python side has checked'],
  [/^(sparse_resize|resize_as_sparse|copy_sparse_to_sparse)/, 'its own code has made'],
  [/^(lu_unpack|linalg_ldl_solve)$/, 'its own code has made'], // any value is followed as a pivot, some for ever
  [/^ctc_loss$/, 'its caller has checked'], // any value of a label becomes an address
  [/^gradient$/, 'its Python side has checked'], // reads a spacing per dimension, even if fewer are given
  [/^max_pool1d$/, 'its own code has checked'], // kernel times dilation overflows 64 bits
  // Gives another tensor's memory any size, stride and offset.
  [/^set_?$/, 'its own code has checked'],
  // Writes 'out' as if its batches were contiguous.
  [/^tri[lu]\.out$/, 'its own code has made'],
  [/^align_/, "its named tensors' Python side has checked"],
];

/** What to use instead, if that is not the same name without `_` or `_backward`. */
const INSTEAD: Readonly<Record<string, string>> = {
  _reshape_alias: 'reshape',
  _local_scalar_dense: 'item',
  _to_copy: 'to.dtype',
  _scaled_dot_product_flash_attention: 'scaled_dot_product_attention',
  _scaled_dot_product_efficient_attention: 'scaled_dot_product_attention',
  native_batch_norm: 'batch_norm',
  histogramdd: 'histogram.bin_ct',
  rrelu_with_noise: 'rrelu',
  rrelu_with_noise_: 'rrelu_',
  rrelu_with_noise_functional: 'rrelu',
  embedding_bag: 'embedding',
  max_pool1d: 'max_pool1d_with_indices',
  lu_unpack: 'linalg_lu',
  linalg_ldl_solve: 'linalg_solve',
  native_channel_shuffle: 'channel_shuffle',
  conv_depthwise3d: 'conv3d',
  thnn_conv2d: 'conv2d',
};

function baseName(name: string): string {
  return name.replace(/^aten::/, '').split('.')[0] as string;
}

/** Whether `aten()` refuses an operator of this name. */
export function isInternal(name: string): boolean {
  return reasonFor(name) !== undefined;
}

function reasonFor(name: string): string | undefined {
  const [base, whole] = [baseName(name), name.replace(/^aten::/, '')];
  if (base.startsWith('attune::') || CHECKED.test(base)) return undefined;
  if (base.includes('::')) return 'its own code has checked';
  return INTERNAL.find(([pattern]) => pattern.test(base) || pattern.test(whole))?.[1];
}

/** Throws for an operator that could end the process if it were called with bad arguments. */
export function refuseInternal(name: string): void {
  const reason = reasonFor(name);
  if (reason === undefined) return;
  throw new TensorError(
    name,
    `${name} is internal to libtorch: it works on what ${reason}, and checks nothing itself, so that wrong arguments ` +
      `would end the process.${advice(baseName(name))}`,
  );
}

function advice(base: string): string {
  const bare = base.replace(/^_+/, '').replace(/_forward$/, '');
  const forward = bare.replace(/_(double_)?backward.*$/, '');
  const instead = INSTEAD[base] ?? forward;
  if (isInternal(instead) || native.overloads(`aten::${baseName(instead)}`).length === 0) return '';
  return forward === bare ? ` Use "${instead}".` : ` Call "${instead}" and then backward() or gradients().`;
}
