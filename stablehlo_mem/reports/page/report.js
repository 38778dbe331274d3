"use strict";
// Draws the memory of a program over its course from the JSON in the page; no library, no network.

const DATA = JSON.parse(document.getElementById("data").textContent);
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const LARGEST = 8;
const LOOP_HEIGHT = 16;
const CHARTS = DATA.charts.map((chart, index) => ({ ...stacked(chart), root: document.getElementById(`chart-${index}`) }));
const SAME_SCALE = document.getElementById("same-scale");

function bytes(size) {
  let unit = 0;
  while (unit < UNITS.length - 1 && size >= 1023.5 * 1024 ** unit) unit += 1;
  return `${Number((size / 1024 ** unit).toPrecision(3))} ${UNITS[unit]}`;
}

/** Colours by what a value is, the same in every chart: golden angles apart, those of one kind nearer to one another. */
function colours(buffers) {
  const seen = new Map();
  return buffers.map(({ name }) => {
    const hash = [...name].reduce((sum, letter) => (sum * 31 + letter.codePointAt(0)) % 65521, 0);
    const count = seen.get(name) ?? 0;
    seen.set(name, count + 1);
    return `hsl(${Math.round(hash * 137.508 + 14 * count) % 360} 55% var(--lightness))`;
  });
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
  const fixed = chart.fixed.map((part) => pile({ ...part, begin: 0, end: points - 1, fill: "var(--fixed)" }));
  const small = pile({ name: "smaller temporaries", size: rest, begin: 0, end: points - 1, fill: "var(--small)" });
  const fills = colours(chart.buffers);
  const large = chart.buffers.map((buffer, i) => pile({ ...buffer, fill: fills[i] }));
  return { ...chart, points, totals: offsets, bands: [...fixed, small, ...large], large, peak: Math.max(0, ...offsets) };
}

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
  const svg = chart.root.querySelector("svg");
  const width = svg.clientWidth || 600;
  const rows = Math.min(3, 1 + Math.max(-1, ...chart.loops.map((loop) => loop.depth)));
  const inner = Math.max(180, Math.min(320, width * 0.5));
  const frame = { left: 62, right: width - 10, top: 18, bottom: 18 + inner };
  const height = frame.bottom + rows * LOOP_HEIGHT + 20;
  const x = (i) => frame.left + ((frame.right - frame.left) * i) / Math.max(1, chart.points);
  const y = (size) => frame.bottom - (inner * size) / highest;
  svg.replaceChildren();
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("height", height);
  for (const tick of ticks(highest)) {
    svg.append(element("line", { class: "grid", x1: frame.left, x2: frame.right, y1: y(tick), y2: y(tick) }));
    svg.append(element("text", { x: frame.left - 6, y: y(tick) + 4, "text-anchor": "end" }, bytes(tick)));
  }
  chart.loops.filter((loop) => loop.made && loop.depth < rows).forEach((loop) => {
    const place = { x: x(loop.begin), width: x(loop.end + 1) - x(loop.begin), y: frame.top, height: inner };
    svg.append(element("rect", { class: "region", ...place }));
  });
  for (const band of chart.bands) {
    const outline = [...steps(band.top, band.begin, x, y), ...steps(band.bottom, band.begin, x, y).reverse()];
    band.path = element("path", { class: "band", d: `M${joined(outline)}Z` });
    band.path.style.fill = band.fill;
    svg.append(band.path);
  }
  svg.append(element("path", { class: "total", d: `M${joined(steps(chart.totals, 0, x, y))}` }));
  chart.loops.forEach((loop) => drawLoop(svg, loop, x, frame, rows));
  if (DATA.budget && DATA.budget <= highest) {
    const level = y(DATA.budget);
    svg.append(element("line", { class: "budget", x1: frame.left, x2: frame.right, y1: level, y2: level }));
    svg.append(element("text", { class: "over", x: frame.left + 4, y: level - 5 }, `budget ${bytes(DATA.budget)}`));
  }
  const summit = chart.totals.indexOf(chart.peak);
  const middle = Math.min(Math.max(x(summit + 0.5), frame.left + 40), frame.right - 40);
  svg.append(element("text", { class: "mark", x: middle, y: y(chart.peak) - 5, "text-anchor": "middle" }, bytes(chart.peak)));
  svg.append(element("text", { x: frame.left, y: height - 4 }, "program order →"));
  chart.here = element("line", { class: "here", y1: frame.top, y2: frame.bottom, visibility: "hidden" });
  svg.append(chart.here);
  Object.assign(chart, { x, y, frame, rows });
  show(chart);
}

function drawLoop(svg, loop, x, frame, rows) {
  if (loop.depth >= rows) return;
  const [left, right, top] = [x(loop.begin), x(loop.end + 1), frame.bottom + 3 + loop.depth * LOOP_HEIGHT];
  const size = { x: left, width: Math.max(1, right - left) };
  loop.bar = element("rect", { class: loop.made ? "loop made" : "loop", ...size, y: top, height: LOOP_HEIGHT - 3, rx: 3 });
  svg.append(loop.bar);
  const label = stepsOf(loop);
  const place = { class: loop.made ? "onloop made" : "onloop", x: (left + right) / 2, y: top + 10, "text-anchor": "middle" };
  if (right - left > 7 * label.length) svg.append(element("text", place, label));
}

/** One step is also what a loop of unknown length counts for. */
function stepsOf(loop) {
  return loop.steps > 1 ? `${loop.steps} steps` : "steps not known";
}

function ticks(highest) {
  const unit = 1024 ** Math.max(0, Math.floor(Math.log2(Math.max(1, highest)) / 10));
  const raw = highest / unit / 4;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= raw) * unit;
  return Array.from({ length: Math.floor(highest / step) + 1 }, (_, i) => i * step);
}

/** What is under a point of the drawing: a loop, a band, or a moment of the program alone. */
function pick(chart, event) {
  const box = chart.root.querySelector("svg").getBoundingClientRect();
  const [left, top] = [event.clientX - box.left, event.clientY - box.top];
  const share = (left - chart.frame.left) / (chart.frame.right - chart.frame.left);
  const point = Math.min(chart.points - 1, Math.max(0, Math.floor(share * chart.points)));
  if (top > chart.frame.bottom) {
    const depth = Math.floor((top - chart.frame.bottom) / LOOP_HEIGHT);
    return { point, loop: chart.loops.find((l) => l.depth === depth && l.begin <= point && point <= l.end) };
  }
  const level = ((chart.frame.bottom - top) / (chart.frame.bottom - chart.y(1))) || 0;
  const at = (band) => point - band.begin;
  const inside = (b) => b.begin <= point && point <= b.end && b.bottom[at(b)] <= level && level < b.top[at(b)];
  return { point, band: chart.bands.find(inside) };
}

function show(chart) {
  const chosen = chart.hovered || chart.pinned || {};
  for (const band of chart.bands) band.path.classList.toggle("on", band === chosen.band);
  for (const loop of chart.loops) if (loop.bar) loop.bar.classList.toggle("on", loop === chosen.loop);
  chart.buttons.forEach((button, i) => button.setAttribute("aria-pressed", chart.listed[i] === (chart.pinned || {}).band));
  chart.here.setAttribute("visibility", chosen.point === undefined ? "hidden" : "visible");
  if (chosen.point !== undefined) {
    const middle = chart.x(chosen.point + 0.5);
    chart.here.setAttribute("x1", middle);
    chart.here.setAttribute("x2", middle);
  }
  chart.details.replaceChildren(...described(chart, chosen));
}

function described(chart, { point, band, loop }) {
  const lines = [];
  if (loop) lines.push(`Loop, ${stepsOf(loop)}${loop.made ? ", made by this plan" : ""}`, loop.source);
  if (band) {
    lines.push(`${band.name}: ${bytes(band.size && point !== undefined ? band.size[point] : (band.nbytes ?? Math.max(...band.size)))}`);
    if (band.source) lines.push(band.source);
    if (band.op) lines.push(`alive from ${chart.ops[band.begin]} to ${chart.ops[band.end]}`);
  }
  if (point !== undefined) lines.push(`At ${chart.ops[point]}: ${bytes(chart.totals[point])} in all`);
  if (!lines.length) lines.push("Point at a buffer, or choose one below.");
  return lines.filter(Boolean).map((line, i) => {
    const made = document.createElement(i ? "p" : "strong");
    made.textContent = line;
    return made;
  });
}

function pin(chart, chosen) {
  chart.pinned = chosen;
  chart.hovered = undefined;
  show(chart);
}

/** The largest buffers as buttons: a legend, and the way in without a pointer. */
function list(chart) {
  chart.details = chart.root.querySelector(".details");
  chart.listed = chart.large.slice().sort((a, b) => b.nbytes - a.nbytes).slice(0, LARGEST);
  chart.buttons = chart.listed.map((band) => {
    const button = document.createElement("button");
    const [swatch, size, name] = ["i", "b", "span"].map((tag) => document.createElement(tag));
    swatch.style.background = band.fill;
    size.textContent = bytes(band.nbytes);
    name.textContent = band.name;
    button.append(swatch, size, name);
    button.addEventListener("click", () => pin(chart, chart.pinned && chart.pinned.band === band ? undefined : { band }));
    const item = document.createElement("li");
    item.append(button);
    chart.root.querySelector(".largest").append(item);
    return button;
  });
}

function listen(chart) {
  const svg = chart.root.querySelector("svg");
  svg.addEventListener("pointermove", (event) => {
    chart.hovered = pick(chart, event);
    show(chart);
  });
  svg.addEventListener("pointerleave", () => {
    chart.hovered = undefined;
    show(chart);
  });
  svg.addEventListener("click", (event) => pin(chart, pick(chart, event)));
}

function drawAll() {
  const same = SAME_SCALE && SAME_SCALE.checked;
  const near = (peak) => (DATA.budget && DATA.budget < 2 * peak ? Math.max(peak, DATA.budget) : peak);
  const highest = CHARTS.map((chart) => Math.max(1, 1.08 * near(chart.peak)));
  CHARTS.forEach((chart, i) => draw(chart, same ? Math.max(...highest) : highest[i]));
}

for (const chart of CHARTS) {
  list(chart);
  listen(chart);
}
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") CHARTS.forEach((chart) => pin(chart, undefined));
});
if (SAME_SCALE) SAME_SCALE.addEventListener("change", drawAll);
window.addEventListener("resize", drawAll);
drawAll();
