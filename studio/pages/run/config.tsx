/** The run's options: those that differ from the defaults first; then the commands that made it and go on with it. */
import type { ConfigValue, RunDetail } from '../../../src/studio/api.ts';
import { bytes } from '../../format/numbers.ts';
import { Time } from '../../parts/figures.tsx';
import { Command } from '../../parts/page-parts.tsx';

export function Config({ run }: { run: RunDetail }) {
  const changed = run.config.filter((value) => value.changed);
  const rest = run.config.filter((value) => !value.changed);
  return (
    <div class="stack">
      <section class="stack tight">
        <h2>The command that does the same again</h2>
        <Command text={run.commandLine} />
        {run.resumeCommand && (
          <>
            <h2>The command that goes on from the newest checkpoint</h2>
            <Command text={run.resumeCommand} />
          </>
        )}
      </section>
      <section class="stack tight">
        <h2>Different from the defaults</h2>
        <Options values={changed} withDefault />
      </section>
      <details class="stack tight">
        <summary>
          <h2>{rest.length} options at their defaults</h2>
        </summary>
        <Options values={rest} />
      </details>
      <details>
        <summary>
          <h2>Versions and files</h2>
        </summary>
        <div class="card flush scroll-x">
          <table class="plain-table stacked">
            <tbody>
              {Object.entries(run.versions).map(([name, value]) => (
                <tr key={name}>
                  <th scope="row">{name}</th>
                  <td class="mono wrap">{written(value)}</td>
                </tr>
              ))}
              {run.files.map(({ name, bytes: size, modified }) => (
                <tr key={name}>
                  <th scope="row">{name}</th>
                  <td>
                    {bytes(size)}, <Time at={modified} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </details>
    </div>
  );
}

function Options({ values, withDefault = false }: { values: readonly ConfigValue[]; withDefault?: boolean }) {
  if (values.length === 0) return <p class="muted">None.</p>;
  return (
    <div class="card flush scroll-x">
      <table class="plain-table options stacked">
        <thead>
          <tr>
            <th>option</th>
            <th>value</th>
            {withDefault && <th>default</th>}
            <th>what it does</th>
          </tr>
        </thead>
        <tbody>
          {values.map(({ name, value, default: usual, description }) => (
            <tr key={name}>
              <th scope="row" class="mono">
                {name}
              </th>
              <td class="mono wrap">{written(value)}</td>
              {withDefault && (
                <td class="mono wrap muted" data-column="default">
                  {written(usual)}
                </td>
              )}
              <td class="muted long">{description}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function written(value: unknown): string {
  if (value === undefined || value === null) return '–';
  return typeof value === 'string' ? value : JSON.stringify(value);
}
