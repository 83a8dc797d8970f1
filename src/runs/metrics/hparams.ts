/**
 * A run's settings for TensorBoard's HPARAMS page: one summary at the start of a session and one at its end, in the
 * plugin's own messages (tensorboard/plugins/hparams/{plugin_data,hparams}.proto). The plugin finds the metrics in the
 * scalars.
 */
import { bytes, float64, message, text, varint } from './protobuf.ts';

export type SessionEnd = 'finished' | 'interrupted' | 'failed';

const version = varint(1, 0);
/** `Status`: an interrupted run neither succeeded nor failed. */
const statuses: Record<SessionEnd, number> = { interrupted: 0, finished: 1, failed: 2 };

/** The summary value at the start of a session, with every setting. */
export function sessionStart(settings: Record<string, unknown>, name: string, timeMs: number): Buffer {
  const entries = Object.entries(settings).flatMap(([key, value]) => {
    const told = valueProto(value);
    return told === undefined ? [] : [message(1, [text(1, key), message(2, [told])])];
  });
  const info = message(3, [...entries, text(4, name), float64(5, timeMs / 1000)]);
  return pluginValue('_hparams_/session_start_info', info);
}

export function sessionEnd(status: SessionEnd, timeMs: number): Buffer {
  const info = message(4, [varint(1, statuses[status]), float64(2, timeMs / 1000)]);
  return pluginValue('_hparams_/session_end_info', info);
}

/** `google.protobuf.Value`: a number, a string or a boolean. Lists become text, unset values are omitted. */
function valueProto(value: unknown): Buffer | undefined {
  if (value === undefined || value === null) return undefined;
  if (typeof value === 'number') return float64(2, value);
  if (typeof value === 'boolean') return varint(4, Number(value));
  if (typeof value === 'string') return text(3, value);
  return text(3, Array.isArray(value) ? value.join(',') : JSON.stringify(value));
}

/** The plugin reads only the metadata. The tensor is there because every summary must have a value. */
function pluginValue(tag: string, data: Buffer): Buffer {
  const metadata = message(9, [message(1, [text(1, 'hparams'), bytes(2, Buffer.concat([version, data]))])]);
  const zero = bytes(5, Buffer.from(Float32Array.of(0).buffer));
  const tensor = message(8, [varint(1, 1), message(2, [message(2, [varint(1, 1)])]), zero]);
  return message(1, [text(1, tag), tensor, metadata]);
}
