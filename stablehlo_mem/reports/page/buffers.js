// The list of all buffers of a chart: sorted, searched, grouped; a row and its band are chosen together.

const LIST = { chart: undefined, moment: 0, key: "nbytes", down: true, closed: new Set() };
const BOX = document.getElementById("buffers");
const CONTROLS = Object.fromEntries(["of", "search", "group", "peak"].map((id) => [id, document.getElementById(`buffers-${id}`)]));

const isLive = (band) => band.begin <= LIST.moment && LIST.moment <= band.end;
const total = (bands) => bands.reduce((sum, band) => sum + band.nbytes, 0);

/** The moment that is chosen in the chart where there is no band, else the peak. */
function momentOf({ pinned, summit }) {
  return pinned && !pinned.band && pinned.point !== undefined ? pinned.point : summit;
}

function momentText({ chart: { summit, ops }, moment }) {
  return moment === summit ? "at the peak" : `at ${moment + 1} ${ops[moment]}`;
}

function cell(text, title, kind) {
  const made = document.createElement("td");
  made.textContent = text;
  if (title && title !== text) made.title = title;
  if (kind) made.className = kind;
  return made;
}

/** A row; the button in it is what a keyboard reaches. */
function row(band) {
  const { chart } = LIST;
  const [made, first, button, swatch] = ["tr", "td", "button", "i"].map((tag) => document.createElement(tag));
  swatch.style.background = band.fill;
  button.append(swatch, bytes(band.nbytes));
  first.append(button);
  made.classList.toggle("live", isLive(band));
  const point = (i) => cell(`${i + 1} ${chart.ops[i]}`, "", "point");
  made.append(first, cell(band.name), cell(band.line, band.source), cell(band.scope || "–"), point(band.begin), point(band.end));
  made.addEventListener("click", () => pin(chart, chart.pinned && chart.pinned.band === band ? undefined : { band }));
  band.row = made;
  return made;
}

function compare(a, b) {
  const [left, right] = [a[LIST.key], b[LIST.key]];
  const order = typeof left === "number" ? left - right : left.localeCompare(right, undefined, { numeric: true });
  return (LIST.down ? -order : order) || b.nbytes - a.nbytes;
}

/** The groups with most bytes at the moment first; one without a name if nothing is grouped. */
function groups(bands, key) {
  const found = new Map();
  for (const band of bands) {
    const name = key ? band[key] || "no scope" : "";
    found.set(name, [...(found.get(name) ?? []), band]);
  }
  const made = [...found].map(([name, members]) => ({ name, members, live: members.filter(isLive) }));
  return made.sort((a, b) => total(b.live) - total(a.live) || total(b.members) - total(a.members));
}

function fillList() {
  LIST.moment = momentOf(LIST.chart);
  const words = CONTROLS.search.value.toLowerCase().split(/\s+/).filter(Boolean);
  const text = (band) => `${band.name} ${band.source} ${band.scope}`.toLowerCase();
  const found = LIST.chart.large.filter(
    (band) => words.every((word) => text(band).includes(word)) && (!CONTROLS.peak.checked || isLive(band)),
  );
  for (const band of LIST.chart.large) band.row = undefined;
  const bodies = groups(found.sort(compare), CONTROLS.group.value).map(groupBody);
  const table = BOX.querySelector("table");
  for (const old of [...table.tBodies]) old.remove();
  table.append(...bodies);
  for (const head of BOX.querySelectorAll("th")) {
    const isKey = head.firstChild.dataset.key === LIST.key;
    head.setAttribute("aria-sort", isKey ? (LIST.down ? "descending" : "ascending") : "none");
  }
  BOX.classList.toggle("unscoped", !LIST.chart.large.some((band) => band.scope));
  count(found);
  markRow();
}

/** What is listed, and what is not: the list has the large temporaries only. */
function count(found) {
  const { chart } = LIST;
  const sum = bytes(total(found.filter(isLive)));
  const small = chart.small.size[LIST.moment] ?? 0;
  const rest = small > 0 ? `; the smaller ones, not listed, are ${bytes(small)} there` : "";
  document.getElementById("buffers-count").textContent =
    `${found.length} of ${chart.large.length} temporaries, ${sum} of them live ${momentText(LIST)} (in bold)${rest}.`;
  CONTROLS.peak.nextSibling.textContent = ` live ${momentText(LIST)}`;
}

/** The rows of a group, below one that opens and closes them and says what is live at the moment. */
function groupBody({ name, members, live }) {
  const body = document.createElement("tbody");
  body.append(...members.map(row));
  if (!name) return body;
  const [head, place, button] = ["tr", "th", "button"].map((tag) => document.createElement(tag));
  place.colSpan = 6;
  place.scope = "rowgroup";
  button.textContent = `${bytes(total(live))} ${momentText(LIST)}: ${name}, ${live.length} of ${members.length} buffers`;
  button.addEventListener("click", () => {
    LIST.closed[LIST.closed.has(name) ? "delete" : "add"](name);
    setOpen();
  });
  const setOpen = () => {
    button.setAttribute("aria-expanded", !LIST.closed.has(name));
    for (const { row: made } of members) made.hidden = LIST.closed.has(name);
  };
  setOpen();
  place.append(button);
  head.append(place);
  head.className = "group";
  body.prepend(head);
  return body;
}

/** Marks the row of the band that is chosen, and brings it into the box. */
function markRow() {
  const chosen = (LIST.chart.pinned || {}).band;
  for (const band of LIST.chart.large) if (band.row) band.row.classList.toggle("on", band === chosen);
  const made = chosen && chosen.row;
  if (!made) return;
  const [box, place] = [BOX.getBoundingClientRect(), made.getBoundingClientRect()];
  const head = BOX.querySelector("thead").offsetHeight;
  if (place.top < box.top + head || place.bottom > box.bottom) BOX.scrollTop += place.top - box.top - head - 40;
}

/** The list shows the chart in which a band or a moment was chosen. */
function listFollows(chart) {
  if (!BOX || (LIST.chart !== chart && !chart.pinned)) return;
  if (LIST.chart === chart && LIST.moment === momentOf(chart)) {
    markRow();
    return;
  }
  LIST.chart = chart;
  CONTROLS.of.value = CHARTS.indexOf(chart);
  fillList();
}

function listenList() {
  if (!BOX) return;
  LIST.chart = CHARTS[0];
  CONTROLS.of.addEventListener("change", () => {
    LIST.chart = CHARTS[CONTROLS.of.value];
    fillList();
  });
  CONTROLS.search.addEventListener("input", fillList);
  CONTROLS.group.addEventListener("change", fillList);
  CONTROLS.peak.addEventListener("change", fillList);
  for (const button of BOX.querySelectorAll("thead button")) {
    button.addEventListener("click", () => {
      const { key } = button.dataset;
      LIST.down = key === LIST.key ? !LIST.down : key === "nbytes";
      LIST.key = key;
      fillList();
    });
  }
  fillList();
}
