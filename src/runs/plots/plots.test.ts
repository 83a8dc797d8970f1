import { inflateSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import {
  bars,
  type Chart,
  colors,
  colorsOf,
  curveCharts,
  grid,
  histogram,
  lineChart,
  reliability,
  scatter,
  toPng,
  toSvg,
  trainingCurves,
} from './plots.ts';
import { Report } from './report.ts';

/** Number of dark pixels in an 8-bit RGBA PNG. */
function darkPixels(png: Uint8Array): number {
  const view = Buffer.from(png);
  const width = view.readUInt32BE(16);
  const data: Buffer[] = [];
  for (let at = 8; at < view.length; ) {
    const length = view.readUInt32BE(at);
    if (view.toString('latin1', at + 4, at + 8) === 'IDAT') data.push(view.subarray(at + 8, at + 8 + length));
    at += length + 12;
  }
  const raw = inflateSync(Buffer.concat(data));
  const stride = width * 4;
  let dark = 0;
  let above = new Uint8Array(stride);
  for (let row = 0; row * (stride + 1) < raw.length; row++) {
    const start = row * (stride + 1);
    const filter = raw[start] ?? 0;
    const line = new Uint8Array(stride);
    for (let i = 0; i < stride; i++) {
      const a = i >= 4 ? (line[i - 4] ?? 0) : 0;
      const b = above[i] ?? 0;
      const c = i >= 4 ? (above[i - 4] ?? 0) : 0;
      const pa = Math.abs(b - c);
      const pb = Math.abs(a - c);
      const pc = Math.abs(a + b - 2 * c);
      const paeth = pa <= pb && pa <= pc ? a : pb <= pc ? b : c;
      line[i] = (raw[start + 1 + i] ?? 0) + ([0, a, b, (a + b) >> 1, paeth][filter] ?? 0);
    }
    for (let i = 0; i < stride; i += 4)
      if ((line[i] ?? 255) < 90 && (line[i + 1] ?? 255) < 90 && (line[i + 2] ?? 255) < 100) dark++;
    above = line;
  }
  return dark;
}

describe('one look', () => {
  it('gives a meaning one colour in lines, histograms, bars and points', async () => {
    const names = ['held-out', 'other', 'train', 'gold', 'proxy'];
    const expected = [colors.heldOut, colors.plain, colors.training, colors.gold, colors.proxy];
    expect(colorsOf(names)).toEqual(expected);
    expect(colorsOf(['against the reward model', 'against the verifier'])).toEqual([colors.proxy, colors.gold]);
    expect(new Set(colorsOf(['process reward model', 'outcome reward model', 'majority'])).size).toBe(3);
    const plots = [
      lineChart({ series: names.map((name) => ({ name, x: [1, 2], y: [1, 2] })) }),
      histogram({ values: Object.fromEntries(names.map((name) => [name, [1, 2]])) }),
      bars({ bars: names.map((label) => ({ label, value: 1 })), colorByLabel: true }),
      bars({ bars: names.map((group) => ({ label: 'x', group, value: 1 })) }),
      scatter({ points: names.map((group) => ({ group, x: 1, y: 1 })) }),
    ];
    for (const plot of plots) {
      const svg = toSvg(plot);
      for (const color of expected) expect(svg).toContain(color);
    }
  });

  it('draws shares from 0 to 1, also with bands and error bars beyond them', async () => {
    const series = [{ name: 'a', x: [0, 1], y: [0.1, 0.9] }];
    const bands = { a: [0.3, 0.3] };
    const bar = { label: 'a', value: 0.95, error: 0.2 };
    for (const chart of [lineChart({ series, bands, share: true }), bars({ bars: [bar], share: true })]) {
      const ticks = [...toSvg(chart).matchAll(/<text[^>]*>(−?[\d.]+)<\/text>/g)].map(([, text]) => text);
      expect(ticks).toContain('1.0');
      for (const beyond of ['−0.2', '1.2']) expect(ticks).not.toContain(beyond);
    }
  });

  it('draws no error bar below zero for what cannot be negative', () => {
    const low = (value: number) => {
      const error = bars({ bars: [{ label: 'a', value, error: 9 }] }).marks.find(({ kind }) => kind === 'line');
      return error?.kind === 'line' ? error.points[0]?.y : undefined;
    };
    expect([low(5), low(-5)]).toEqual([0, -14]);
  });

  it('has plots of one size in a row, on sheets and on pages', async () => {
    const wide = lineChart({ title: 'wide', series: [{ name: 'a', x: [1, 2], y: [0, 123456] }] });
    const tall = bars({ bars: [{ label: 'a', value: 1, group: 'x' }], title: 'legend below', height: 300 });
    const sheet = toSvg(grid([wide, tall]));
    expect(sheet).toContain('M0,0v300h380');
    expect(sheet).not.toContain('v240');
    const page = new Report('t').charts([wide, tall]).html();
    // The plot's corner in the picture and the picture's size must be equal for both.
    const corners = [
      ...page.matchAll(/viewBox="([-\d.]+) ([-\d.]+) ([\d.]+) ([\d.]+)".*?translate\(([\d.]+),([\d.]+)\)/g),
    ];
    const places = corners.map(([, x, y, width, height, left, top]) => [
      Number(left) - Number(x),
      Number(top) - Number(y),
      width,
      height,
    ]);
    expect(places).toHaveLength(2);
    expect(places[1]).toEqual(places[0]);
  });
});

describe('pictures', () => {
  it('draws text with its own font', async () => {
    const chart = (title: string) => lineChart({ title, series: [{ name: 'a', x: [1, 2], y: [1, 2] }] });
    const [short, long] = [await toPng(chart('i')), await toPng(chart('WWWWWWWWWWWWWWWWWWWW'))];
    expect(Buffer.from(short).subarray(1, 4).toString()).toBe('PNG');
    expect(darkPixels(long)).toBeGreaterThan(darkPixels(short) + 500);
  });

  it('labels the axes of charts with a diagonal, which spans the points', async () => {
    const points = [-9, -2].map((x) => ({ x, y: x }));
    const chart = scatter({ xLabel: 'original', yLabel: 'int4', points, diagonal: true });
    const titles = (svg: string) => [...svg.matchAll(/>([^<>]+)<\/text>/g)].map(([, text]) => text);
    expect(titles(toSvg(chart))).toEqual(expect.arrayContaining(['original', 'int4']));
    expect(titles(toSvg(chart))).not.toContain('1');
    const bins = [{ confidence: 0.5, accuracy: 0.4, count: 3 }];
    expect(titles(toSvg(reliability({ bins })))).toContain('observed share');
  });

  it('draws every kind, together', async () => {
    const png = await toPng(
      grid([
        histogram({ title: 'h', values: { a: [1, 2, 3], b: [2, 3, 4] }, rule: 2 }),
        histogram({ values: [5, 5, 5], share: true }),
        scatter({
          points: [
            { x: 1, y: 2 },
            { x: Number.NaN, y: 1 },
          ],
          diagonal: true,
        }),
        bars({ bars: [{ label: 'a', value: 1, error: 0.1 }] }),
        bars({
          bars: [
            { label: 'a', value: 1, group: 'x' },
            { label: 'a', value: 2, group: 'y' },
          ],
          horizontal: true,
        }),
        reliability({ bins: [{ confidence: 0.5, accuracy: 0.4, count: 3 }] }),
        lineChart({ series: [{ name: 'empty', x: [], y: [] }], yScale: 'log' }),
      ]),
    );
    expect(png.length).toBeGreaterThan(10_000);
  });

  it('puts train and eval of one metric into one panel, the known ones first', async () => {
    const rows = [1, 2, 3].map((step) => ({
      step,
      time: 0,
      'train/zeta': step,
      'train/loss': 1 / step,
      'eval/loss': 2 / step,
      'train/epoch': 0,
      'train/loss_by_examples': 1,
    }));
    const charts = curveCharts(rows);
    expect(charts.map((chart) => chart.title)).toEqual(['loss', 'zeta']);
    const svg = toSvg(charts[0] as Chart);
    expect(svg).toContain('train');
    expect(svg).toContain('eval');
    expect((await trainingCurves(rows)).length).toBeGreaterThan(5000);
  });

  it('writes names below at an angle where they have no room beside one another, and leaves out numbers that have none', () => {
    const named = (labels: string[], value = 0.5) => toSvg(bars({ bars: labels.map((label) => ({ label, value })) }));
    expect(named(['1', '2', '4', '8', '16', '32'])).not.toContain('rotate(-35');
    expect(named(['a model with a long name', 'another one with a long name', 'a third one'])).toContain('rotate(-35');
    const many = Array.from({ length: 16 }, (_, i) => String(i));
    expect(named(many, 0.123)).toContain('>0.123<');
    expect(named(many, 123_456)).not.toContain('>123,456<');
  });

  it('shows only what is a number, and within what the axes are for', () => {
    const bins = [
      { confidence: Number.NaN, accuracy: 0.2, count: 10 },
      { confidence: 0.5, accuracy: 0.5, count: 10 },
    ];
    expect(toSvg(reliability({ bins })).match(/<circle/g)).toHaveLength(1);
    const series = [{ name: 'a', x: [1, 2, 3], y: [0.5, 7, -7] }];
    for (const chart of [
      histogram({ values: [1, 2.5], rule: Number.NaN }),
      histogram({ values: [] }),
      lineChart({ series, bands: { a: [0.5, Number.POSITIVE_INFINITY, Number.NaN] } }),
      lineChart({ series, xMax: Number.NEGATIVE_INFINITY }),
      bars({
        bars: [
          { label: 'a', value: 1e308 },
          { label: 'b', value: Number.NaN },
        ],
      }),
    ])
      expect(toSvg(chart)).not.toMatch(/NaN|Infinity/);
    const within = lineChart({ series, share: true, xMax: 2 }).marks[0];
    expect(within?.kind === 'line' && within.points.map(({ x, y }) => [x, y])).toEqual([
      [1, 0.5],
      [2, 1],
    ]);
  });

  it('counts whole numbers in bins of whole numbers', () => {
    const [boxes] = histogram({ values: [0, 0, 1, 2, 2, 2, 99] }).marks;
    expect(boxes?.kind === 'boxes' && boxes.boxes.slice(0, 2)).toEqual([
      { from: { x: -0.5, y: 0 }, to: { x: 2.5, y: 6 } },
      { from: { x: 2.5, y: 0 }, to: { x: 5.5, y: 0 } },
    ]);
  });

  it('counts values that differ by rounding alone in one bin, which is seen', () => {
    for (const values of [
      [0.1 + 0.2, 0.3],
      [2 ** 60, 2 ** 60],
    ]) {
      const chart = histogram({ values });
      expect(chart.marks[0]).toMatchObject({ boxes: [{ to: { y: 2 } }] });
      expect(toSvg(chart)).toMatch(/<path d="M0,240V0H380V240Z" fill="#0e7490"/);
    }
  });

  it('survives NaN and infinity', async () => {
    const rows = [
      { step: 1, time: 0, 'train/loss': Number.NaN },
      { step: 2, time: 0, 'train/loss': Number.POSITIVE_INFINITY },
    ];
    expect((await trainingCurves(rows)).length).toBeGreaterThan(500);
  });
});

describe('report', () => {
  it('is one file that loads nothing and trusts no text', async () => {
    const html = new Report('Title <b>', 'sub')
      .section('Curves')
      .charts([lineChart({ title: 'loss', series: [{ name: 'a', x: [1, 2], y: [3, 4] }] })])
      .table(['name', 'value'], [['<script>alert(1)</script>', 0.123456]])
      .samples([{ prompt: '1 < 2?', responses: [{ label: 'before', text: '<img src=x>', values: { reward: 0.5 } }] }])
      .html();
    expect(html).toContain('<svg');
    expect(html).toContain('0.1235');
    expect(html).not.toMatch(/<script|<img|href="http/);
    expect(html).toContain('&#60;script&#62;');
  });

  it('writes numbers in four digits', () => {
    const numbers = [1000.4, 2000.2, 12_345.6, 123.04, 100.02, -0.5, 0.00123456, 3, 0, 1e-9, 2.5e7];
    const rows = numbers.map((number) => [number]);
    const html = new Report('t').table(['value'], rows).html();
    const written = [...html.matchAll(/<td class="number">([^<]*)</g)].map(([, text]) => text);
    expect(written.join(' ')).toBe('1000 2000 12350 123 100 -0.5 0.001235 3 0 1.00e-9 25000000');
  });
});

describe('curves', () => {
  const rows = [1, 2, 3].map((step) => ({
    ...{ step, time: step, 'eval/accuracy': 0.2 * step, 'train/accuracy': 0.1 * step },
    ...{ 'train/lr': 1e-3, 'train/examples': step, 'train/loss': 3 - step },
  }));
  const charts = curveCharts(rows);

  it('leave out what never moves and what only counts', () => {
    expect(charts.map(({ title }) => title)).toEqual(['loss', 'accuracy']);
  });

  it('draw training blue, held-out orange whichever came first, and shares from 0 to 1', () => {
    expect(charts[1]?.legend?.map(({ name, color }) => [name, color])).toEqual([
      ['eval', '#ea580c'],
      ['train', '#2563eb'],
    ]);
    expect(charts[1]?.y.ends).toEqual([0, 1]);
  });

  it('draw the learning rate as it was set, also in long runs', () => {
    const many = Array.from({ length: 100 }, (_, i) => ({ step: i + 1, time: i, 'train/lr': i < 5 ? i : 105 - i }));
    const [line, ...more] = curveCharts(many)[0]?.marks ?? [];
    expect(more).toEqual([]);
    expect(line?.kind === 'line' && line.points.map(({ y }) => y)).toEqual(many.map((row) => row['train/lr']));
  });

  it('keep the spikes of long series, and their means beside values that are huge', () => {
    const y = Array.from({ length: 20_000 }, (_, i) => (i === 7777 ? 1e18 : 1));
    const [raw, mean] = lineChart({ series: [{ name: 'kl', x: y.map((_, i) => i), y }] }).marks;
    const drawn = [raw, mean].map((mark) => (mark?.kind === 'line' ? mark.points : []));
    expect(drawn[0]?.length).toBeLessThan(1000);
    expect(drawn[0]).toContainEqual(expect.objectContaining({ x: 7777, y: 1e18 }));
    expect(drawn[1]?.at(-1)).toMatchObject({ x: 19_999, y: 1 });
  });

  it('draw the means of all points of a long series', () => {
    const y = Array.from({ length: 20_000 }, (_, i) => (i % 10 === 3 ? 1 : 0));
    const mean = lineChart({ series: [{ name: 'solved', x: y.map((_, i) => i), y }] }).marks[1];
    const means = mean?.kind === 'line' ? mean.points.map((point) => point.y) : [];
    expect(means.length).toBeGreaterThan(500);
    for (const value of means) expect(value).toBeCloseTo(0.1, 2);
  });

  it('show a single evaluation beside many steps', () => {
    const x = Array.from({ length: 40 }, (_, i) => i);
    const { marks } = lineChart({
      series: [
        { name: 'train', x, y: x },
        { name: 'eval', x: [39], y: [20] },
      ],
    });
    const dots = marks.flatMap((mark) => (mark.kind === 'dots' ? mark.dots : []));
    expect(dots.map((dot) => [dot.x, dot.y])).toEqual([[39, 20]]);
  });

  it('show the only evaluation of a run of many steps', () => {
    const steps = Array.from({ length: 100 }, (_, i) => ({ step: i + 1, time: i, 'train/loss': 5 / (i + 1) }));
    const chart = curveCharts([...steps, { step: 100, time: 100, 'eval/loss': 0.25 }])[0];
    const dots = chart?.marks.filter((mark) => mark.kind === 'dots');
    expect(dots).toMatchObject([{ dots: [{ x: 100, y: 0.25 }], color: colors.heldOut }]);
    expect(toSvg(chart as Chart)).toContain('<circle');
  });

  it('draw the same numbers once, under the name that comes first', () => {
    const twice = rows.map((row) => ({
      ...row,
      'train/other_loss': row['train/loss'],
      'train/score': -row['train/loss'],
    }));
    expect(curveCharts(twice).map(({ title }) => title)).toEqual(['loss', 'accuracy', 'score']);
  });

  it('write 0 as 0 among tiny numbers', async () => {
    const svg = toSvg(lineChart({ title: 'kl', series: [{ name: 'train', x: [1, 2, 3], y: [0, 2e-7, 8e-7] }] }));
    expect(svg).toContain('>8e-7<');
    expect(svg).toContain('>0<');
    expect(svg).not.toContain('>0e+0<');
  });

  it('survive control characters in names', async () => {
    const odd = 'bell\u0007 and escape\u001b';
    const chart = lineChart({ title: odd, series: [{ name: odd, x: [1, 2], y: [1, 2] }] });
    expect((await toPng(chart)).length).toBeGreaterThan(1000);
  });
});
