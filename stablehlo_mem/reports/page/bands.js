"use strict";
// What a chart shows, from the JSON in the page: bands, each with its place in the pile and its colour.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const HUES = 8;
const SHADES = 2;

function bytes(size) {
  let unit = 0;
  while (unit < UNITS.length - 1 && size >= 1023.5 * 1024 ** unit) unit += 1;
  return `${Number((size / 1024 ** unit).toPrecision(3))} ${UNITS[unit]}`;
}

/** The chart with, for each band, where it lies at each point of its life: what is fixed below, small ones, large ones. */
function stacked(chart) {
  const points = chart.temp.length;
  const offsets = new Array(points).fill(0);
  const pile = (band) => {
    band.bottom = offsets.slice(band.begin, band.end + 1);
    for (let i = band.begin; i <= band.end; i += 1) offsets[i] += band.size ? band.size[i] : band.nbytes;
    band.top = offsets.slice(band.begin, band.end + 1);
    return band;
  };
  const rest = chart.temp.slice();
  for (const buffer of chart.buffers) for (let i = buffer.begin; i <= buffer.end; i += 1) rest[i] -= buffer.nbytes;
  const fixed = chart.fixed.map((part, i) => pile({ ...part, begin: 0, end: points - 1, fill: `var(--fixed-${i})` }));
  const small = pile({ name: "smaller temporaries", size: rest, begin: 0, end: points - 1, fill: "var(--small)" });
  const large = chart.buffers.map((buffer) => pile({ ...buffer }));
  const peak = Math.max(0, ...offsets);
  const summit = Math.max(0, offsets.indexOf(peak));
  return { ...chart, points, totals: offsets, bands: [...fixed, small, ...large], large, small, peak, summit };
}

/** Colours the large bands of all charts: one name has one hue everywhere, bands that touch have different colours. */
function colour(charts) {
  const sizes = new Map();
  const all = charts.flatMap((chart) => chart.large).sort((a, b) => b.nbytes - a.nbytes);
  for (const band of all) if (!sizes.has(band.name)) sizes.set(band.name, sizes.size);
  for (const chart of charts) {
    const touches = touching(chart);
    for (const band of chart.large.slice().sort((a, b) => b.nbytes - a.nbytes)) {
      const taken = new Set([...touches.get(band)].map((other) => other.colour));
      const wanted = colours(sizes.get(band.name));
      band.colour = wanted.find((number) => !taken.has(number)) ?? wanted[0];
      band.fill = fill(band.colour);
    }
  }
}

/** All colours, those first that suit the name of a rank: its hue in both shades, then the other hues. */
function colours(rank) {
  const first = Math.floor(rank / HUES);
  return Array.from({ length: HUES * SHADES }, (_, i) => {
    const hue = (rank + Math.floor(i / SHADES)) % HUES;
    return hue * SHADES + ((first + i) % SHADES);
  });
}

/** Hues are 45° apart; those of consecutive names three times that. */
function fill(number) {
  const hue = 25 + ((Math.floor(number / SHADES) * 3) % HUES) * (360 / HUES);
  return `oklch(var(--shade-${number % SHADES}) 0.13 ${hue})`;
}

/** For each large band those that it touches: above or below at some point, or beside it from one point to the next. */
function touching({ large, points }) {
  const touches = new Map(large.map((band) => [band, new Set()]));
  const join = (a, b) => {
    if (a === b) return;
    touches.get(a).add(b);
    touches.get(b).add(a);
  };
  let before = [];
  for (let i = 0; i < points; i += 1) {
    const live = large.filter((band) => band.begin <= i && i <= band.end);
    for (let k = 1; k < live.length; k += 1) join(live[k - 1], live[k]);
    beside(before, live, i, join);
    before = live;
  }
  return touches;
}

/** Joins the bands of two neighbouring points whose heights overlap; both lists are in the order of the pile. */
function beside(before, live, point, join) {
  let [a, b] = [0, 0];
  while (a < before.length && b < live.length) {
    const [left, right] = [before[a], live[b]];
    const [low, high] = [left.bottom[point - 1 - left.begin], left.top[point - 1 - left.begin]];
    const [bottom, top] = [right.bottom[point - right.begin], right.top[point - right.begin]];
    if (low < top && bottom < high) join(left, right);
    if (high < top) a += 1;
    else b += 1;
  }
}
