/** Recorded and changed side by side: the step's figures, then every response's advantage. */
import type { RolloutDetail, WhatIfAnswer, WhatIfRollout } from '../../../src/studio/api.ts';
import { setQuery } from '../../app/router.ts';
import { short } from '../../format/numbers.ts';
import { Explain } from '../../parts/explain.tsx';
import { Num } from '../../parts/figures.tsx';
import { scaleOf, shadeOf } from './token-colors.ts';

export function WhatIfResult({ answer, rollout }: { answer: WhatIfAnswer; rollout: RolloutDetail | undefined }) {
  const { recorded, changed } = answer;
  const terms = [...new Set([...Object.keys(recorded.losses), ...Object.keys(changed.losses)])];
  const own = answer.rollouts.find(({ id }) => id === rollout?.id);
  return (
    <div class="stack tight">
      <div class="scroll-x">
        <table class="plain-table what-if-table">
          <thead>
            <tr>
              <th>step {answer.step}</th>
              <th class="number">
                recorded<span>: {recorded.algorithm}</span>
              </th>
              <th class="number">
                changed<span>: {changed.algorithm}</span>
              </th>
              {recorded.logged && <th class="number as-logged">as logged</th>}
            </tr>
          </thead>
          <tbody>
            {terms.map((term) => (
              <tr key={term}>
                <th scope="row">
                  {term.replaceAll('_', ' ')}
                  <Explain term={term} />
                </th>
                <td class="number">
                  <Num value={recorded.losses[term]} />
                </td>
                <td class="number">
                  <Num value={changed.losses[term]} />
                </td>
                {recorded.logged && (
                  <td class="number muted as-logged">
                    <Num value={recorded.logged[term]} />
                  </td>
                )}
              </tr>
            ))}
            <Pair
              name="tokens clipped"
              term="clip_fraction"
              a={recorded.shareClipped}
              b={changed.shareClipped}
              kind="percent"
              logged={recorded.logged}
              isGiven={answer.checkpoint === undefined}
            />
            <Pair
              name="mean ratio"
              term="ratio"
              a={recorded.meanRatio}
              b={changed.meanRatio}
              logged={recorded.logged}
              isGiven={answer.checkpoint === undefined}
            />
            <Pair
              name="responses with a gradient"
              term="advantage"
              a={recorded.trained}
              b={changed.trained}
              kind="count"
              logged={recorded.logged}
            />
          </tbody>
        </table>
      </div>
      {answer.checkpoint === undefined && (
        <p class="small muted">
          At the sampler’s own weights every ratio is 1 and nothing is clipped, whatever is changed: choose a checkpoint
          to see both.
        </p>
      )}
      {answer.notes.map((note) => (
        <p key={note} class="small muted">
          {note}
        </p>
      ))}
      <p class="small muted">
        {answer.agrees
          ? `The recomputed recorded side agrees with what the run logged (sampler gap ${short(answer.samplerGap)}).`
          : `The recomputed recorded side differs from what the run logged (sampler gap ${short(answer.samplerGap)}).`}
        <Explain term="samplerGap" />
      </p>
      {own && rollout?.tokens && <Tokens rollout={rollout} own={own} />}
      <Advantages rows={answer.rollouts} open={rollout?.id} />
    </div>
  );
}

interface PairProps {
  name: string;
  term: string;
  a: number;
  b: number;
  kind?: 'short' | 'percent' | 'count';
  logged: object | undefined;
  /** Nothing is clipped and every ratio is 1 at the sampler's own weights, whatever is changed. */
  isGiven?: boolean;
}

function Pair({ name, term, a, b, kind = 'short', logged, isGiven = false }: PairProps) {
  return (
    <tr class={isGiven ? 'given' : ''}>
      <th scope="row">
        {name}
        <Explain term={term} />
      </th>
      <td class="number">
        <Num value={a} kind={kind} />
      </td>
      <td class="number">
        <Num value={b} kind={kind} />
      </td>
      {logged && <td class="as-logged" />}
    </tr>
  );
}

/** Which tokens of the open response the changed side would weigh, and which it would clip. */
function Tokens({ rollout, own }: { rollout: RolloutDetail; own: WhatIfRollout }) {
  const tokens = (rollout.tokens ?? []).map((token, i) => ({
    ...token,
    ratio: own.ratio[i],
    advantage: own.advantages[i] ?? 0,
    clipped: own.clipped[i] === 1,
  }));
  const scale = scaleOf(tokens, 'advantage');
  return (
    <section class="stack tight">
      <h3>This response under the change</h3>
      <p class="small muted">Colour: advantage per token. Struck through: clipped.</p>
      <div class="token-text">
        {tokens.map((token, i) => {
          const shade = shadeOf(token, scale);
          return (
            <span
              key={i}
              class={token.clipped ? 'token clipped' : 'token'}
              title={`advantage ${short(token.advantage)}, ratio ${short(token.ratio)}${token.clipped ? ', clipped' : ''}`}
              style={{
                background: shade ? `rgb(var(--${shade.tone}) / ${(0.6 * shade.strength).toFixed(3)})` : 'none',
              }}
            >
              {token.text}
            </span>
          );
        })}
      </div>
    </section>
  );
}

function Advantages({ rows, open }: { rows: readonly WhatIfRollout[]; open: number | undefined }) {
  const largest = rows.reduce((most, row) => Math.max(most, Math.abs(row.recorded), Math.abs(row.changed)), 1e-9);
  return (
    <section class="stack tight">
      <h3>
        Advantage of each response
        <Explain term="advantage" />
      </h3>
      <div class="advantages scroll-x">
        <table class="plain-table">
          <thead>
            <tr>
              <th>response</th>
              <th class="number">reward</th>
              <th>recorded</th>
              <th>changed</th>
            </tr>
          </thead>
          <tbody>
            {rows.slice(0, 256).map((row) => (
              <tr key={row.id} class={row.id === open ? 'is-open' : ''}>
                <td>
                  <button type="button" class="link-button" onClick={() => setQuery({ open: row.id, view: 'what-if' })}>
                    {row.id}
                  </button>
                </td>
                <td class="number">
                  <Num value={row.reward} />
                </td>
                <td>
                  <Bar value={row.recorded} largest={largest} />
                </td>
                <td>
                  <Bar value={row.changed} largest={largest} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {rows.length > 256 && <p class="small muted">The first 256 of {rows.length} responses.</p>}
    </section>
  );
}

/** A bar to the right of the middle for what is encouraged, to the left for what is discouraged. */
function Bar({ value, largest }: { value: number; largest: number }) {
  const share = (50 * Math.abs(value)) / largest;
  const place = value < 0 ? { right: '50%', width: `${share}%` } : { left: '50%', width: `${share}%` };
  return (
    <span class="bar">
      <span class="bar-track">
        <i class={value < 0 ? 'high' : 'low'} style={place} />
      </span>
      <Num value={value} />
    </span>
  );
}
