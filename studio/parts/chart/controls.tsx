/** One row of settings for all charts of a page. */
import type { MetricAxis } from '../../../src/studio/api.ts';
import { Segments } from '../page-parts.tsx';
import type { Trimming } from './trim.ts';
import type { ChartView } from './view.ts';

const axes: [MetricAxis, string][] = [
  ['step', 'Step'],
  ['examples', 'Examples'],
  ['tokens', 'Tokens'],
  ['time', 'Time'],
];

const trimmings: [Trimming, string][] = [
  ['far', 'Trim far spikes'],
  ['outer', 'Trim outer 2 %'],
  ['none', 'Show spikes'],
];

export function ChartControls({ view }: { view: ChartView }) {
  return (
    <div class="chart-controls">
      <Segments
        label="What the curves are drawn over"
        value={view.axis.value}
        choices={axes}
        onChange={(axis) => {
          view.zoom.value = undefined;
          view.axis.value = axis;
        }}
      />
      <label>
        Smoothing <output class="number">{view.smoothing.value.toFixed(2)}</output>
        <input
          type="range"
          min="0"
          max="0.95"
          step="0.05"
          value={view.smoothing.value}
          style={{ '--filled': view.smoothing.value / 0.95 }}
          onInput={(event) => {
            view.smoothing.value = Number(event.currentTarget.value);
          }}
        />
      </label>
      <label class="check">
        <input
          type="checkbox"
          checked={view.log.value}
          onChange={(event) => {
            view.log.value = event.currentTarget.checked;
          }}
        />
        Log y
      </label>
      <select
        class="auto"
        aria-label="Spikes"
        title="What the y axis leaves out: far spikes are more than 10 times the range of the rest above it, outer values the last 2 % at each end"
        value={view.trimmed.value}
        onChange={(event) => {
          view.trimmed.value = event.currentTarget.value as Trimming;
        }}
      >
        {trimmings.map(([value, text]) => (
          <option key={value} value={value}>
            {text}
          </option>
        ))}
      </select>
      <label class="check" title="A zoomed view moves on with the newest values">
        <input
          type="checkbox"
          checked={view.follow.value}
          onChange={(event) => {
            view.follow.value = event.currentTarget.checked;
          }}
        />
        Follow
      </label>
      <button
        type="button"
        class="button slim"
        disabled={view.zoom.value === undefined}
        title="Drag over a chart to zoom; double-click for all"
        onClick={() => {
          view.zoom.value = undefined;
        }}
      >
        Show all
      </button>
    </div>
  );
}
