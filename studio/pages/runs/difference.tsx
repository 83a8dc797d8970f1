/** Options in which the chosen runs differ, or the last value of every metric, side by side. */

import { useEffect, useState } from 'preact/hooks';
import type { CompareAnswer, RunRow } from '../../../src/studio/api.ts';
import { href } from '../../app/router.ts';
import { isShare } from '../../format/metrics.ts';
import { Explain } from '../../parts/explain.tsx';
import { Num } from '../../parts/figures.tsx';
import { Waiting } from '../../parts/page-parts.tsx';
import { post } from '../../wire/requests.ts';
import { runColor } from './run-color.ts';

export function Difference({ runs, what }: { runs: readonly RunRow[]; what: 'options' | 'metrics' }) {
  const [answer, setAnswer] = useState<CompareAnswer>();
  const [error, setError] = useState<Error>();
  const ids = runs.map(({ id }) => id).join();
  useEffect(() => {
    const abort = new AbortController();
    post<CompareAnswer>('compare', { ids: ids.split(',') }, abort.signal).then(setAnswer, (failure) => {
      if (!abort.signal.aborted) setError(failure);
    });
    return () => abort.abort();
  }, [ids]);
  if (!answer) return <Waiting error={error} />;
  if (what === 'options' && answer.options.length === 0)
    return (
      <p class="muted">{runs.length === 1 ? 'Choose a second run to compare with.' : 'They have the same options.'}</p>
    );
  return (
    <div class="card flush scroll-x">
      <table class="plain-table difference">
        <thead>
          <tr>
            <th>{what === 'options' ? 'option' : 'metric'}</th>
            {answer.runs.map(({ id, name }, i) => (
              <th key={id} class={what === 'metrics' ? 'number' : ''}>
                <span class="swatch" style={{ '--own': `var(${runColor(i)})` }} />
                <a href={href(['runs', id])}>{name}</a>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {what === 'options'
            ? answer.options.map(({ name, values }) => (
                <tr key={name}>
                  <th scope="row" class="mono">
                    {name}
                  </th>
                  {values.map((value, i) => (
                    <td key={answer.runs[i]?.id} class="mono">
                      {written(value)}
                    </td>
                  ))}
                </tr>
              ))
            : answer.metrics.map(({ name, values }) => (
                <tr key={name}>
                  <th scope="row">
                    {name}
                    <Explain term={name} />
                  </th>
                  {values.map((value, i) => (
                    <td key={answer.runs[i]?.id} class="number">
                      <Num value={value} kind={isShare(name) ? 'percent' : 'short'} />
                    </td>
                  ))}
                </tr>
              ))}
        </tbody>
      </table>
    </div>
  );
}

function written(value: unknown) {
  if (value === undefined || value === null) return <span class="muted">not set</span>;
  return typeof value === 'string' ? value : JSON.stringify(value);
}
