/** The figures of an exploration: what to mind first, then lengths, biases, openings and samples. */
import type { Exploration, Summary } from '../../../src/studio/api.ts';
import { percent } from '../../format/numbers.ts';
import { Num } from '../../parts/figures.tsx';
import { Icon } from '../../parts/icons.tsx';

export function Figures({ exploration }: { exploration: Exploration }) {
  const { statistics, patterns, openings, samples, warnings } = exploration;
  const left = Object.entries(exploration.left_out);
  return (
    <div class="stack">
      <dl class="facts card">
        <Fact name="Shape">{exploration.shape}</Fact>
        <Fact name="Rows">
          <Num value={exploration.rows} kind="count" />
        </Fact>
        <Fact name="Examples">
          <Num value={exploration.examples} kind="count" />
        </Fact>
        {exploration.bad_rows > 0 && (
          <Fact name="Unreadable rows">
            <Num value={exploration.bad_rows} kind="count" />
          </Fact>
        )}
        {left.map(([reason, number]) => (
          <Fact key={reason} name={`Left out: ${reason.replaceAll('_', ' ')}`}>
            <Num value={number} kind="count" />
          </Fact>
        ))}
        {statistics.tokens && (
          <Fact name={`Longer than ${statistics.tokens.max_length} tokens`}>
            <Num value={statistics.tokens.share_over_max_length} kind="percent" />
          </Fact>
        )}
      </dl>
      {warnings.map((warning) => (
        <p key={warning} class="data-warning">
          <Icon name="warning" /> {warning}
        </p>
      ))}
      <div class="data-columns">
        <Lengths title="Characters" summaries={statistics.characters} />
        <Lengths title="Words" summaries={statistics.words} />
        {statistics.tokens && <Lengths title="Tokens" summaries={{ whole: statistics.tokens }} />}
        {patterns.length_bias && <LengthBias bias={patterns.length_bias} />}
        {patterns.label_balance && <Labels balance={patterns.label_balance} />}
        {Object.keys(patterns.conversation_depth.by_turns).length > 1 && <Depth depth={patterns.conversation_depth} />}
        {statistics.sources && <Counts title="Sources" counts={statistics.sources} />}
      </div>
      <Openings openings={openings} />
      <section class="stack tight">
        <h2>Samples</h2>
        {samples.slice(0, 6).map((sample, i) => (
          <article key={`${i}-${sample.prompt.slice(0, 40)}`} class="card stack tight">
            <pre class="muted">{sample.prompt}</pre>
            <div class="answers">
              {Object.entries(sample.responses).map(([name, text]) => (
                <div key={name}>
                  <h3>{name}</h3>
                  <pre>{text}</pre>
                </div>
              ))}
            </div>
          </article>
        ))}
      </section>
    </div>
  );
}

function Fact({ name, children }: { name: string; children: preact.ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function Lengths({ title, summaries }: { title: string; summaries: Record<string, Summary> }) {
  return (
    <section class="card flush scroll-x">
      <table class="plain-table">
        <thead>
          <tr>
            <th>{title}</th>
            <th class="number">median</th>
            <th class="number">mean</th>
            <th class="number">min</th>
            <th class="number">max</th>
          </tr>
        </thead>
        <tbody>
          {Object.entries(summaries).map(([name, summary]) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              {[summary.median, summary.mean, summary.min, summary.max].map((value, i) => (
                <td key={['median', 'mean', 'min', 'max'][i]} class="number">
                  <Num value={value} />
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function LengthBias({ bias }: { bias: NonNullable<Exploration['patterns']['length_bias']> }) {
  return (
    <section class="card stack tight">
      <h2>
        Is longer preferred?{' '}
        <span class={bias.biased ? 'tag warning' : 'tag good'}>{bias.biased ? 'biased' : 'no bias'}</span>
      </h2>
      <Bars
        rows={[
          ['chosen longer', bias.chosen_longer],
          ['equal', bias.equal],
          ['rejected longer', bias.rejected_longer],
        ]}
      />
      <p class="small muted">
        Mean difference <Num value={bias.mean_difference_characters} /> characters, effect size{' '}
        <Num value={bias.effect_size} />. A reward model learns a bias like any other preference.
      </p>
    </section>
  );
}

function Labels({ balance }: { balance: NonNullable<Exploration['patterns']['label_balance']> }) {
  return (
    <section class="card stack tight">
      <h2>Labels</h2>
      <Bars rows={Object.entries(balance).map(([name, { share }]) => [name, share])} />
    </section>
  );
}

function Depth({ depth }: { depth: Exploration['patterns']['conversation_depth'] }) {
  const all = Object.values(depth.by_turns).reduce((sum, { examples }) => sum + examples, 0) || 1;
  return (
    <section class="card stack tight">
      <h2>Turns</h2>
      <Bars
        rows={Object.entries(depth.by_turns)
          .slice(0, 8)
          .map(([turns, { examples }]) => [turns, examples / all])}
      />
    </section>
  );
}

function Counts({ title, counts }: { title: string; counts: Record<string, number> }) {
  const all = Object.values(counts).reduce((sum, value) => sum + value, 0) || 1;
  const rows = Object.entries(counts).sort(([, a], [, b]) => b - a);
  return (
    <section class="card stack tight">
      <h2>{title}</h2>
      <Bars rows={rows.slice(0, 10).map(([name, value]) => [name, value / all])} />
    </section>
  );
}

/** Shares from 0 to 1 as bars. */
function Bars({ rows }: { rows: readonly (readonly [string, number])[] }) {
  return (
    <dl class="share-bars">
      {rows.map(([name, share]) => (
        <div key={name}>
          <dt class="cut" title={name}>
            {name}
          </dt>
          <dd>
            <span class="share-track">
              <i style={{ width: `${100 * share}%` }} />
            </span>
            <span class="number" title={String(share)}>
              {percent(share)}
            </span>
          </dd>
        </div>
      ))}
    </dl>
  );
}

function Openings({ openings }: { openings: Exploration['openings'] }) {
  const sides = Object.entries(openings).filter(([, list]) => list.length > 0);
  if (sides.length === 0) return null;
  return (
    <section class="stack tight">
      <h2>How responses begin</h2>
      <div class="data-columns">
        {sides.map(([side, list]) => (
          <div key={side} class="card flush">
            <table class="plain-table">
              <thead>
                <tr>
                  <th>{side}</th>
                  <th class="number">times</th>
                </tr>
              </thead>
              <tbody>
                {list.slice(0, 8).map(({ text, count }) => (
                  <tr key={text}>
                    <td class="wrap">{text}</td>
                    <td class="number">
                      <Num value={count} kind="count" />
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        ))}
      </div>
    </section>
  );
}
