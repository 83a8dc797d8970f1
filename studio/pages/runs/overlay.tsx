/** Curves of several runs over one another, a panel per metric. Only opened groups are read. */
import { useSignal } from '@preact/signals';
import { useMemo } from 'preact/hooks';
import type { RunRow } from '../../../src/studio/api.ts';
import { kept } from '../../app/kept.ts';
import { go } from '../../app/router.ts';
import { isConstant, labelOf, panelsOf, shareTopOf, sideOf, unitOf } from '../../format/metrics.ts';
import { Chart } from '../../parts/chart/chart.tsx';
import { ChartControls } from '../../parts/chart/controls.tsx';
import type { ChartSeries } from '../../parts/chart/series.ts';
import { useChartView } from '../../parts/chart/view.ts';
import { Waiting } from '../../parts/page-parts.tsx';
import { type RunCurves, useCurves } from '../../wire/curves.ts';
import { runColor } from './run-color.ts';
import { meanCurve, type SeedGroup, seedGroups } from './seeds.ts';

/** Kept over reloads: whoever compares seeds compares them again. */
const joined = kept('mean-of-seeds', true);

export function Overlay({ runs }: { runs: readonly RunRow[] }) {
  const view = useChartView('overlay');
  const groups = panelsOf([...new Set(runs.flatMap(({ last }) => Object.keys(last)))]);
  const [first] = groups;
  const open = useSignal<string | undefined>(undefined);
  const group = groups.find(({ title }) => title === open.value) ?? first;
  const names = (group?.panels ?? []).flatMap((panel) => panel.names).sort(heldOutFirst);
  const ids = runs.map(({ id }) => id);
  const grouped = seedGroups(runs);
  const hasSeeds = grouped.length < runs.length;
  const isGrouped = hasSeeds && joined.value;
  const drawn = isGrouped ? grouped : runs.map((run): SeedGroup => ({ runs: [run], name: run.name }));
  const live = runs.some(({ state }) => state === 'running');
  const curves = useCurves({
    ids,
    names,
    axis: view.axis.value,
    zoom: view.zoom.value,
    every: live ? 4000 : undefined,
  });
  const panels = useMemo(
    () => names.map((name) => ({ name, series: seriesOf(name, drawn, curves.runs) })),
    // Names and runs are made anew at every drawing.
    [curves.runs, names.join(), ids.join(), isGrouped],
  );
  const openStep = (step: number, id: string | undefined) => {
    const run = runs.find((each) => each.id === id);
    if (run?.hasRollouts) go(['rollouts', run.id], { step });
  };
  const shown = panels.filter(({ series }) => series.length > 0 && !isConstant(series.map(({ y }) => y)));
  return (
    <>
      <div class="spread">
        <div class="row tight">
          {groups.map(({ title }) => (
            <button
              key={title}
              type="button"
              class="button slim"
              aria-pressed={title === group?.title}
              onClick={() => {
                open.value = title;
              }}
            >
              {title}
            </button>
          ))}
        </div>
        <div class="row">
          {hasSeeds && (
            <label
              class="check"
              title="Runs that differ only by their seed as one line: their mean, and its standard error as a band"
            >
              <input
                type="checkbox"
                checked={joined.value}
                onChange={(event) => {
                  joined.value = event.currentTarget.checked;
                }}
              />
              Mean of seeds
            </label>
          )}
          <ChartControls view={view} />
        </div>
      </div>
      {!curves.runs ? (
        <Waiting error={curves.error} />
      ) : (
        <div class="charts wide">
          {shown.map(({ name, series }) => (
            <Chart
              key={name}
              title={`${labelOf(name)}, ${sideOf(name)}`}
              term={name}
              series={series}
              shareTop={shareTopOf(name)}
              unit={unitOf(name)}
              view={view}
              onPick={runs.some(({ hasRollouts }) => hasRollouts) ? (step, { id }) => openStep(step, id) : undefined}
              tall
            />
          ))}
          {shown.length === 0 && <p class="muted">Nothing here changes over the runs.</p>}
        </div>
      )}
    </>
  );
}

/** A click on the mean of several seeds leads to the first of them. */
function seriesOf(name: string, groups: readonly SeedGroup[], read: Map<string, RunCurves> | undefined): ChartSeries[] {
  return groups.flatMap(({ runs, name: label }, i) => {
    const curves = runs.flatMap(({ id }) => read?.get(id)?.curves.get(name) ?? []).filter(({ x }) => x.length > 0);
    const curve = curves.length > 1 ? meanCurve(curves) : curves[0];
    return curve ? [{ id: runs[0]?.id ?? '', label, color: runColor(i), ...curve }] : [];
  });
}

const heldOutFirst = (a: string, b: string) => Number(b.startsWith('eval/')) - Number(a.startsWith('eval/'));
