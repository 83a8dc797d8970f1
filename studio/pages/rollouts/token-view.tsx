/** The response token by token: one number as colour, all numbers of the token under the cursor or the focus. */
import { useSignal } from '@preact/signals';
import { useMemo, useRef } from 'preact/hooks';
import type { RolloutDetail, RolloutToken } from '../../../src/studio/api.ts';
import { route, setQuery } from '../../app/router.ts';
import { short } from '../../format/numbers.ts';
import { Explain } from '../../parts/explain.tsx';
import { Num } from '../../parts/figures.tsx';
import { Segments } from '../../parts/page-parts.tsx';
import {
  legends,
  type Measure,
  measureNames,
  measuresOf,
  measureUnits,
  type Scale,
  scaleOf,
  shadeOf,
} from './token-colors.ts';

const terms: Record<Measure, string> = {
  logprob: 'logprob',
  entropy: 'entropy',
  ratio: 'ratio',
  advantage: 'advantage',
  clipped: 'clip_fraction',
  kl: 'kl',
  value: 'advantage',
};

export function TokenView({ rollout }: { rollout: RolloutDetail }) {
  const tokens = rollout.tokens ?? [];
  const known = useMemo(() => measuresOf(tokens), [tokens]);
  const asked = route.value.query.color as Measure | undefined;
  const measure = known.find((each) => each === asked) ?? 'logprob';
  const scale = useMemo(() => scaleOf(tokens, measure), [tokens, measure]);
  const at = useSignal(0);
  return (
    <div class="stack tight">
      <div class="spread">
        <div class="row tight">
          <Segments
            label="Number shown as colour"
            value={measure}
            choices={known.map((each) => [each, measureNames[each]] as const)}
            onChange={(next) => setQuery({ color: next })}
          />
          <Explain term={terms[measure]} />
        </div>
        {rollout.checkpoints.length > 0 && <Under rollout={rollout} />}
      </div>
      <Legend scale={scale} />
      {rollout.promptTokens && (
        <details>
          <summary class="small muted">Prompt, {rollout.promptTokens.length} tokens</summary>
          <p class="token-text muted">{rollout.promptTokens.map(({ text }) => text).join('')}</p>
        </details>
      )}
      <TokenText
        tokens={tokens}
        scale={scale}
        at={at.value}
        onAt={(index) => {
          at.value = index;
        }}
      />
      <Numbers token={tokens[at.value]} index={at.value} of={tokens.length} rollout={rollout} />
    </div>
  );
}

/** Entropy, ratio and clip need the weights: those of a checkpoint. */
function Under({ rollout }: { rollout: RolloutDetail }) {
  return (
    <label class="row tight small">
      Weights
      <select
        class="auto"
        value={rollout.scoredUnder ?? ''}
        onChange={(event) => setQuery({ checkpoint: event.currentTarget.value })}
      >
        <option value="">as sampled</option>
        {rollout.checkpoints.map((name) => (
          <option key={name} value={name}>
            {name}
          </option>
        ))}
      </select>
    </label>
  );
}

function Legend({ scale: { measure, full } }: { scale: Scale }) {
  const { none, high, low } = legends[measure];
  const end = measure === 'ratio' ? Math.exp(full) : full;
  const unit = measureUnits[measure] ? ` ${measureUnits[measure]}` : '';
  return (
    <div class="token-legend small">
      {low && (
        <span>
          {low} ({short(end)})
        </span>
      )}
      <i class={low ? 'both' : 'one'} />
      <span class="muted">{low ? '' : none}</span>
      <span>
        {high}
        {measure !== 'clipped' &&
          ` (${short(measure === 'ratio' ? 1 / end : measure === 'logprob' || low ? -end : end)}${unit})`}
      </span>
    </div>
  );
}

interface TokenTextProps {
  tokens: readonly RolloutToken[];
  scale: Scale;
  at: number;
  onAt: (index: number) => void;
}

function TokenText({ tokens, scale, at, onAt }: TokenTextProps) {
  const box = useRef<HTMLDivElement>(null);
  const moveTo = (index: number) => {
    const next = Math.max(0, Math.min(tokens.length - 1, index));
    onAt(next);
    box.current?.children[next]?.scrollIntoView({ block: 'nearest' });
  };
  const pressed = (event: KeyboardEvent) => {
    const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tokens.length - 1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    moveTo(next);
  };
  return (
    // One handler for all tokens: there may be thousands.
    // biome-ignore lint/a11y/useSemanticElements: a text that arrows move in, for which there is no element
    <div
      ref={box}
      class="token-text"
      role="group"
      aria-label="Tokens of the response. Arrow keys move between them."
      // biome-ignore lint/a11y/noNoninteractiveTabindex: as above
      tabIndex={0}
      onKeyDown={pressed}
      onMouseOver={(event) => {
        const index = (event.target as HTMLElement).dataset.index;
        if (index !== undefined) onAt(Number(index));
      }}
      onFocus={() => moveTo(at)}
    >
      {tokens.map((token, i) => {
        const shade = shadeOf(token, scale);
        return (
          <span
            key={i}
            data-index={i}
            class={i === at ? 'token at' : 'token'}
            style={{ background: shade ? `rgb(var(--${shade.tone}) / ${(0.75 * shade.strength).toFixed(3)})` : 'none' }}
          >
            {visible(token.text)}
          </span>
        );
      })}
    </div>
  );
}

/** A line break is a token too: it gets a sign besides what it does. */
const visible = (text: string) => (text === '' ? '∅' : text.replaceAll('\n', '⏎\n'));

interface NumbersProps {
  token: RolloutToken | undefined;
  index: number;
  of: number;
  rollout: RolloutDetail;
}

function Numbers({ token, index, of, rollout }: NumbersProps) {
  if (!token) return null;
  const under = rollout.scoredUnder;
  const rows: [string, number | undefined][] = [
    ['log-prob (sampled)', token.logprob],
    ['probability (sampled)', Math.exp(token.logprob)],
    [`log-prob (${under})`, token.ratio === undefined ? undefined : token.logprob + Math.log(token.ratio)],
    ['log-prob (reference)', token.refLogprob],
    ['KL (k3)', token.kl],
    [`entropy (${under})`, token.entropy],
    ['ratio', token.ratio],
    ['advantage', token.advantage],
    ['value', token.value],
  ];
  return (
    <div class="token-numbers" role="status" aria-live="polite">
      <div class="row tight">
        <code class="tag">{JSON.stringify(token.text)}</code>
        <span class="small muted">
          token {index + 1} of {of}, id {token.id}
        </span>
        {token.clipped && <span class="tag warning">clipped</span>}
        {rollout.clip && (
          <span class="small muted">
            clip {short(rollout.clip.low)} to {short(rollout.clip.high)}
          </span>
        )}
      </div>
      <dl>
        {rows.flatMap(([name, value]) =>
          value === undefined || value === null
            ? []
            : [
                <div key={name}>
                  <dt>{name}</dt>
                  <dd class="mono">
                    <Num value={value} />
                  </dd>
                </div>,
              ],
        )}
      </dl>
    </div>
  );
}
