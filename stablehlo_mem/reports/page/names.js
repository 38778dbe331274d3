// The names below a chart: scopes, as brackets, where they have room, and ops in the room that is left.

const LETTER = 6.2; // pixels of a letter of 11 pixels on average
const APART = 14; // pixels between two names
const MOST = 2 / 3;

function drawNames(chart) {
  const { svg, frame, points, view: [first, last] } = chart;
  const scopes = scopeNames(chart);
  for (const { left, right, name } of scopes) {
    svg.append(element("path", { class: "bracket", d: `M${left} ${frame.names - 11}v4H${right}v-4` }));
    svg.append(nameAt(chart, (left + right) / 2, name, "name scope"));
  }
  for (const { middle, name } of opNames(chart, scopes)) {
    svg.append(element("path", { class: "bracket", d: `M${middle} ${frame.names - 11}v4` }));
    svg.append(nameAt(chart, middle, name, "name"));
  }
  const part = last - first + 1 < points ? `, ${first + 1} to ${last + 1} of ${points}` : "";
  svg.append(element("text", { x: frame.left, y: frame.height - 4 }, `program order →${part}`));
}

function nameAt({ frame }, middle, name, kind) {
  return element("text", { class: kind, x: middle, y: frame.names + 4, "text-anchor": "middle" }, name);
}

/** Stretches of one scope that have room for its name, at the greatest depth at which most of their width has. */
function scopeNames({ scopes, x, view: [first, last] }) {
  const paths = bridged(scopes.slice(first, last + 1)).map((scope) => scope.split("/"));
  const width = (list) => list.reduce((sum, part) => sum + part.right - part.left, 0);
  for (let depth = Math.max(0, ...paths.map((path) => path.length)); depth > 0; depth -= 1) {
    const parts = stretches(paths.map((path) => path.slice(0, depth).join("/")))
      .filter(({ name }) => name)
      .map(({ name, begin, end }) => {
        return { name: name.split("/").at(-1), left: x(first + begin) + 1, right: x(first + end + 1) - 1 };
      });
    const fitting = parts.filter(({ name, left, right }) => right - left > LETTER * name.length);
    if (depth === 1 || width(fitting) > MOST * width(parts)) return fitting;
  }
  return [];
}

/** Scopes with those of the ops around them where an op between two of one scope has none. */
function bridged(scopes) {
  const runs = stretches(scopes);
  return runs.flatMap(({ name, begin, end }, i) => {
    const [before, after] = [runs[i - 1], runs[i + 1]];
    const around = !name && before && after && before.name === after.name ? before.name : name;
    return new Array(end - begin + 1).fill(around);
  });
}

/** Runs of equal names. */
function stretches(names) {
  const found = [];
  names.forEach((name, i) => {
    if (i && names[i - 1] === name) found.at(-1).end = i;
    else found.push({ name, begin: i, end: i });
  });
  return found;
}

/** Ops as far apart as their names need, and clear of other names. */
function opNames({ ops, x, frame, view: [first, last] }, taken) {
  const found = [];
  let free = frame.left - 30;
  for (let i = first; i <= last; i += 1) {
    const middle = x(i + 0.5);
    const [left, right] = [-1, 1].map((side) => middle + (side * LETTER * ops[i].length) / 2);
    const isTaken = taken.some((name) => left < name.right + 6 && name.left - 6 < right);
    if (left < free || right > frame.right + 8 || isTaken) continue;
    found.push({ middle, name: ops[i] });
    free = right + APART;
  }
  return found;
}
