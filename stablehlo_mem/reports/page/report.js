// Starts the page: charts and list from the JSON in it, and what happens where the reader points.

const DATA = JSON.parse(document.getElementById("data").textContent);
const LARGEST = 6;
const SAME_SCALE = document.getElementById("same-scale");
const CHARTS = DATA.charts.map(opened);
colour(CHARTS);

function opened(data, index) {
  const chart = stacked(data);
  const root = document.getElementById(`chart-${index}`);
  return { ...chart, root, svg: root.querySelector("svg"), view: [0, chart.points - 1] };
}

/** What is under a point of the drawing: a loop, a band, or a moment of the program alone. */
function pick(chart, event) {
  const { frame } = chart;
  const top = event.clientY - chart.svg.getBoundingClientRect().top;
  const point = pointAt(chart, chartX(chart, event));
  if (top > frame.bottom) {
    const depth = Math.floor((top - frame.bottom) / LOOP_HEIGHT);
    return { point, loop: chart.loops.find((l) => l.depth === depth && l.begin <= point && point <= l.end) };
  }
  const level = (frame.bottom - top) / (frame.bottom - chart.y(1)) || 0;
  const at = (band) => point - band.begin;
  const inside = (b) => b.begin <= point && point <= b.end && b.bottom[at(b)] <= level && level < b.top[at(b)];
  return { point, band: chart.bands.find(inside) };
}

function show(chart) {
  const chosen = chart.hovered || chart.pinned || {};
  for (const band of chart.bands) if (band.path) band.path.classList.toggle("on", band === chosen.band);
  for (const loop of chart.loops) if (loop.bar) loop.bar.classList.toggle("on", loop === chosen.loop);
  chart.buttons.forEach((button, i) => button.setAttribute("aria-pressed", chart.listed[i] === (chart.pinned || {}).band));
  const isSeen = chart.view[0] <= chosen.point && chosen.point <= chart.view[1];
  chart.here.setAttribute("visibility", isSeen ? "visible" : "hidden");
  if (isSeen) for (const end of ["x1", "x2"]) chart.here.setAttribute(end, chart.x(chosen.point + 0.5));
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
  const scope = chart.scopes[point] ? ` in ${chart.scopes[point]}` : "";
  if (point !== undefined) lines.push(`At ${chart.ops[point]}${scope}: ${bytes(chart.totals[point])} in all`);
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
  listFollows(chart);
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
  chart.svg.addEventListener("pointermove", (event) => {
    chart.hovered = pick(chart, event);
    show(chart);
  });
  chart.svg.addEventListener("pointerleave", () => {
    chart.hovered = undefined;
    show(chart);
  });
  listenZoom(chart);
}

/** The height of each chart: its peak, with the measured one, and the budget if that is near. */
function drawAll() {
  const same = SAME_SCALE && SAME_SCALE.checked;
  const near = (peak) => (DATA.budget && DATA.budget < 2 * peak ? Math.max(peak, DATA.budget) : peak);
  const highest = CHARTS.map((chart) => Math.max(1, 1.08 * near(Math.max(chart.peak, chart.measured ?? 0))));
  CHARTS.forEach((chart, i) => {
    chart.highest = same ? Math.max(...highest) : highest[i];
    zoom(chart, ...chart.view);
  });
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
listenList();
