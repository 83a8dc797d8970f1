/** How replies are sampled. */
import type { ChatSampling, ChatSlot } from '../../../src/studio/api.ts';
import { blind, sampling, system } from './talk.ts';

type NumberName = Exclude<keyof ChatSampling, 'thinking'>;

const numbers: [name: NumberName, label: string, step: string, hint: string][] = [
  ['temperature', 'Temperature', '0.1', '0 takes the likeliest token'],
  ['topP', 'Top-p', '0.05', '1 is the whole distribution'],
  ['topK', 'Top-k', '1', '0 is off'],
  ['minP', 'Min-p', '0.05', '0 is off'],
  ['maxTokens', 'Tokens at most', '16', 'of a reply'],
  ['seed', 'Seed', '1', 'empty: another each time'],
];

export function Settings({ slots }: { slots: readonly ChatSlot[] }) {
  const set = (patch: ChatSampling) => {
    sampling.value = { ...sampling.peek(), ...patch };
  };
  return (
    <details class="chat-settings">
      <summary class="small">
        Sampling
        <span class="muted">
          {' '}
          temperature {sampling.value.temperature ?? 'default'}, top-p {sampling.value.topP ?? 'default'}
          {slots.length === 2 && (blind.value ? ', blind' : ', names shown')}
        </span>
      </summary>
      <div class="settings">
        {numbers.map(([name, label, step, hint]) => (
          <label key={name} class="field">
            <span class="name">{label}</span>
            <input
              type="number"
              min="0"
              step={step}
              title={hint}
              placeholder={hint}
              value={sampling.value[name] ?? ''}
              onInput={({ currentTarget: { value } }) => set({ [name]: value === '' ? undefined : Number(value) })}
            />
          </label>
        ))}
        <label class="field settings-wide">
          <span class="name">System prompt</span>
          <textarea
            rows={2}
            placeholder="none"
            value={system.value}
            onInput={(event) => {
              system.value = event.currentTarget.value;
            }}
          />
        </label>
        {slots.some(({ thinking }) => thinking) && (
          <label class="check">
            <input
              type="checkbox"
              checked={sampling.value.thinking ?? true}
              onChange={(event) => set({ thinking: event.currentTarget.checked })}
            />
            Let it think first
          </label>
        )}
        {slots.length === 2 && (
          <label class="check">
            <input
              type="checkbox"
              checked={blind.value}
              onChange={(event) => {
                blind.value = event.currentTarget.checked;
              }}
            />
            Blind: random order, names after the vote
          </label>
        )}
      </div>
    </details>
  );
}
