// Draws one chart: the part of the program that is in view, its bands, loops, levels and names along the axis.

const LOOP_HEIGHT = 16;

function element(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

/** Steps along the values from one point on: a corner where they change, and both ends. */
function steps(values, begin, x, y) {
  const path = [];
  values.forEach((value, i) => {
    if (i && values[i - 1] === value) return;
    if (i) path.push([x(begin + i), y(values[i - 1])]);
    path.push([x(begin + i), y(value)]);
  });
  return [...path, [x(begin + values.length), y(values.at(-1))]];
}

const joined = (path) => path.map(([a, b]) => `${a.toFixed(1)} ${b.toFixed(1)}`).join("L");

function draw(chart, highest) {
  Object.assign(chart, layout(chart, highest));
  const { svg, frame } = chart;
  svg.replaceChildren();
  svg.setAttribute("viewBox", `0 0 ${frame.width} ${frame.height}`);
  svg.setAttribute("height", frame.height);
  drawScale(chart);
  drawMade(chart);
  drawBands(chart);
  for (const loop of chart.loops) drawLoop(chart, loop);
  drawLevels(chart);
  drawNames(chart);
  chart.here = element("line", { class: "here", y1: frame.top, y2: frame.bottom, visibility: "hidden" });
  chart.range = element("rect", { class: "range", y: frame.top, height: frame.bottom - frame.top, visibility: "hidden" });
  svg.append(chart.range, chart.here);
  show(chart);
}

/** The places of everything: `x` of a point's left edge and `y` of bytes, in pixels. */
function layout({ svg, loops, view: [first, last] }, highest) {
  const width = svg.clientWidth || 600;
  const rows = Math.min(3, 1 + Math.max(-1, ...loops.map((loop) => loop.depth)));
  const inner = Math.max(180, Math.min(320, width * 0.5));
  const frame = { left: 62, right: width - 10, top: 18, bottom: 18 + inner, width };
  frame.names = frame.bottom + rows * LOOP_HEIGHT + 14;
  frame.height = frame.names + 22;
  const x = (i) => frame.left + ((frame.right - frame.left) * (i - first)) / (last - first + 1);
  const y = (size) => frame.bottom - (inner * size) / highest;
  return { x, y, frame, rows, highest };
}

function drawScale({ svg, frame, y, highest }) {
  for (const tick of ticks(highest)) {
    svg.append(element("line", { class: "grid", x1: frame.left, x2: frame.right, y1: y(tick), y2: y(tick) }));
    svg.append(element("text", { x: frame.left - 6, y: y(tick) + 4, "text-anchor": "end" }, bytes(tick)));
  }
}

function ticks(highest) {
  const unit = 1024 ** Math.max(0, Math.floor(Math.log2(Math.max(1, highest)) / 10));
  const raw = highest / unit / 4;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= raw) * unit;
  return Array.from({ length: Math.floor(highest / step) + 1 }, (_, i) => i * step);
}

function drawBands(chart) {
  const { svg, x, y, view: [first, last] } = chart;
  for (const band of chart.bands) {
    const [begin, end] = [Math.max(first, band.begin), Math.min(last, band.end)];
    band.path = undefined;
    if (begin > end) continue;
    const seen = (values) => steps(values.slice(begin - band.begin, end - band.begin + 1), begin, x, y);
    band.path = element("path", { class: "band", d: `M${joined([...seen(band.top), ...seen(band.bottom).reverse()])}Z` });
    band.path.style.fill = band.fill;
    svg.append(band.path);
  }
  svg.append(element("path", { class: "total", d: `M${joined(steps(chart.totals.slice(first, last + 1), first, x, y))}` }));
}

/** The left edge and the width of what of a loop is in view; undefined if nothing is. */
function extent({ x, rows, view: [first, last] }, { begin, end, depth }) {
  if (depth >= rows || end < first || last < begin) return undefined;
  const left = x(Math.max(first, begin));
  return { x: left, width: Math.max(1, x(Math.min(last, end) + 1) - left) };
}

/** Behind everything: where the loops run that the plan made. */
function drawMade(chart) {
  const { top, bottom } = chart.frame;
  for (const loop of chart.loops) {
    const place = loop.made && extent(chart, loop);
    if (place) chart.svg.append(element("rect", { class: "region", ...place, y: top, height: bottom - top }));
  }
}

function drawLoop(chart, loop) {
  const { svg, frame } = chart;
  const place = extent(chart, loop);
  loop.bar = undefined;
  if (!place) return;
  const [top, made] = [frame.bottom + 3 + loop.depth * LOOP_HEIGHT, loop.made ? " made" : ""];
  loop.bar = element("rect", { class: `loop${made}`, ...place, y: top, height: LOOP_HEIGHT - 3, rx: 3 });
  svg.append(loop.bar);
  if (place.width < 7 * stepsOf(loop).length) return;
  const middle = { x: place.x + place.width / 2, y: top + 10, "text-anchor": "middle" };
  svg.append(element("text", { class: `onloop${made}`, ...middle }, stepsOf(loop)));
}

/** One step is also what a loop of unknown length counts for. */
function stepsOf(loop) {
  return loop.steps > 1 ? `${loop.steps} steps` : "steps not known";
}

/** The budget, the peak that the compiler measured, and the highest point in view. */
function drawLevels(chart) {
  const { svg, frame, x, y, view: [first, last] } = chart;
  const line = (kind, level, text, at) => {
    if (!level || level > chart.highest) return;
    svg.append(element("line", { class: kind, x1: frame.left, x2: frame.right, y1: y(level), y2: y(level) }));
    svg.append(element("text", { class: `on ${kind}`, y: y(level) - 5, ...at }, `${text} ${bytes(level)}`));
  };
  line("budget", DATA.budget, "budget", { x: frame.left + 4 });
  line("measured", chart.measured, "measured", { x: frame.right - 4, "text-anchor": "end" });
  const seen = chart.totals.slice(first, last + 1);
  const peak = Math.max(...seen);
  const middle = Math.min(Math.max(x(first + seen.indexOf(peak) + 0.5), frame.left + 40), frame.right - 40);
  svg.append(element("text", { class: "on mark", x: middle, y: y(peak) - 5, "text-anchor": "middle" }, bytes(peak)));
}
