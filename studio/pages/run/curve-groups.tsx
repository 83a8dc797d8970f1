/** The run's curves by group. A click on a point goes to that step's rollouts. */
import { useMemo } from 'preact/hooks';
import type { RunDetail } from '../../../src/studio/api.ts';
import { go } from '../../app/router.ts';
import { colorOf, isConstant, labelOf, type Panel, panelsOf, sideOf } from '../../format/metrics.ts';
import { Chart } from '../../parts/chart/chart.tsx';
import { ChartControls } from '../../parts/chart/controls.tsx';
import type { ChartSeries } from '../../parts/chart/series.ts';
import type { ChartView } from '../../parts/chart/view.ts';
import { Empty, Waiting } from '../../parts/page-parts.tsx';
import type { Curve } from '../../wire/curves.ts';

interface CurveGroupsProps {
  run: RunDetail;
  curves: ReadonlyMap<string, Curve> | undefined;
  error: Error | undefined;
  view: ChartView;
}

export function CurveGroups({ run, curves, error, view }: CurveGroupsProps) {
  const groups = useMemo(() => {
    const named = panelsOf([...(curves?.keys() ?? [])]);
    return named.flatMap(({ title, panels }) => {
      // Some metrics are others by a second name (the score is the reward where nothing is taken off): drawn once.
      const seen = new Set<string>();
      const drawn = panels.flatMap((panel) => {
        const series = seriesOf(panel, curves);
        if (series.length === 0 || isConstant(series.map(({ y }) => y))) return [];
        const content = JSON.stringify(series.map(({ color, y }) => [color, y]));
        if (seen.has(content)) return [];
        seen.add(content);
        return [{ ...panel, series }];
      });
      return drawn.length === 0 ? [] : [{ title, panels: drawn }];
    });
  }, [curves]);
  if (!curves) return <Waiting error={error} />;
  if (groups.length === 0)
    return (
      <Empty icon="runs" title="No curves yet">
        <p>The first values are written after the first step.</p>
      </Empty>
    );
  return (
    <div class="stack">
      <div class="spread">
        <ChartControls view={view} />
        {run.hasRollouts && <span class="muted small">Click a point to see that step’s rollouts.</span>}
      </div>
      {groups.map(({ title, panels }) => (
        <section key={title} class="chart-group">
          <h2>{title}</h2>
          <div class="charts">
            {panels.map((panel) => (
              <Chart
                key={panel.title}
                title={labelOf(panel.title)}
                term={panel.title}
                series={panel.series}
                share={panel.share}
                view={view}
                onPick={run.hasRollouts ? (step) => go(['rollouts', run.id], { step }) : undefined}
              />
            ))}
          </div>
        </section>
      ))}
    </div>
  );
}

function seriesOf(panel: Panel, curves: ReadonlyMap<string, Curve> | undefined): ChartSeries[] {
  return panel.names.flatMap((name) => {
    const curve = curves?.get(name);
    return curve && curve.x.length > 0 ? [{ label: sideOf(name), color: colorOf(name), ...curve }] : [];
  });
}
