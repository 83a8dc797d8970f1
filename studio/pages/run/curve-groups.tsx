/** The run's curves by group. A click on a point goes to that step's rollouts. */
import { useMemo, useRef } from 'preact/hooks';
import type { RunDetail } from '../../../src/studio/api.ts';
import { go } from '../../app/router.ts';
import {
  colorOf,
  isConstant,
  labelFor,
  labelOf,
  type Panel,
  panelsOf,
  shareTopOf,
  sideOf,
  unitOf,
} from '../../format/metrics.ts';
import { Chart } from '../../parts/chart/chart.tsx';
import { ChartControls } from '../../parts/chart/controls.tsx';
import type { ChartSeries } from '../../parts/chart/series.ts';
import type { ChartView } from '../../parts/chart/view.ts';
import { Empty, Waiting } from '../../parts/page-parts.tsx';
import type { Curve } from '../../wire/curves.ts';
import { type DrawnGroup, keepPlaces } from './curve-places.ts';

interface CurveGroupsProps {
  run: RunDetail;
  curves: ReadonlyMap<string, Curve> | undefined;
  error: Error | undefined;
  view: ChartView;
}

export function CurveGroups({ run, curves, error, view }: CurveGroupsProps) {
  const places = useRef(new Map<string, string>());
  const groups = useMemo(() => keepPlaces(drawnGroups(curves, places.current), places.current), [curves]);
  const same = groups.flatMap((group) => group.same);
  if (!curves) return <Waiting error={error} />;
  if (groups.length === 0)
    return (
      <Empty icon="runs" title={run.state === 'running' ? 'No curves yet' : 'No curves'}>
        <p>
          {run.state === 'running'
            ? 'The first values are written after the first step.'
            : 'This run wrote no values, or none that can be read (metrics.jsonl in its folder).'}
        </p>
      </Empty>
    );
  return (
    <div class="stack">
      <ChartControls view={view} />
      {groups.map(({ title, panels }, i) => (
        <section key={title} class="chart-group">
          <div class="row">
            <h2>{title}</h2>
            {i === 0 && run.hasRollouts && <span class="small muted">Click a point to see that step’s rollouts.</span>}
          </div>
          <div class="charts">
            {panels.map((panel) => (
              <Chart
                key={panel.title}
                title={labelFor(run.kind, panel.title)}
                term={panel.title}
                series={panel.series}
                shareTop={shareTopOf(panel.title)}
                unit={unitOf(panel.title)}
                view={view}
                onPick={run.hasRollouts ? (step) => go(['rollouts', run.id], { step }) : undefined}
              />
            ))}
          </div>
        </section>
      ))}
      {same.length > 0 && <p class="small muted">Not drawn twice: {same.join('; ')}.</p>}
    </div>
  );
}

/** Without constants and second names, unless they have been drawn before (`places`). */
function drawnGroups(
  curves: ReadonlyMap<string, Curve> | undefined,
  places: ReadonlyMap<string, string>,
): DrawnGroup<Panel & { series: ChartSeries[] }>[] {
  const named = panelsOf([...(curves?.keys() ?? [])]);
  const seen = new Map<string, string>();
  return named.flatMap(({ title, panels }) => {
    const same: string[] = [];
    const drawn = panels.flatMap((panel) => {
      const series = seriesOf(panel, curves);
      if (series.length === 0) return [];
      if (places.has(panel.title)) return [{ ...panel, series }];
      if (isConstant(series.map(({ y }) => y))) return [];
      const contents = series.map(({ color, y }) => color + JSON.stringify(y));
      const twin = contents.every((content) => seen.has(content)) ? seen.get(contents[0] as string) : undefined;
      if (twin !== undefined) {
        same.push(`${labelOf(panel.title)} is the same as ${twin}`);
        return [];
      }
      for (const content of contents) seen.set(content, labelOf(panel.title));
      return [{ ...panel, series }];
    });
    return drawn.length === 0 ? [] : [{ title, panels: drawn, same }];
  });
}

/** Held-out is orange, unless its source has a colour of its own: then it is dashed. */
function seriesOf(panel: Panel, curves: ReadonlyMap<string, Curve> | undefined): ChartSeries[] {
  return panel.names.flatMap((name) => {
    const curve = curves?.get(name);
    if (!curve || curve.x.length === 0) return [];
    const color = colorOf(name);
    return [{ label: sideOf(name), color, dash: name.startsWith('eval/') && color !== '--held-out', ...curve }];
  });
}
