// The names below a chart: scopes, as brackets, and ops in the room that is left.

const LETTER = 6.2; // pixels of a letter of 11 pixels on average
const APART = 14; // pixels between two names
const NARROW = 16; // pixels of a bracket, on average, from which deeper scopes are shown

function drawNames(chart) {
  const { svg, frame, points, view: [first, last] } = chart;
  const parts = scopeParts(chart);
  const scopes = placed(parts, frame);
  for (const { left, right } of parts) {
    svg.append(element("path", { class: "bracket", d: `M${left} ${frame.names - 11}v4H${right}v-4` }));
  }
  for (const { middle, name } of scopes) svg.append(nameAt(chart, middle, name, "name scope"));
  for (const { middle, name } of opNames(chart, [...parts, ...scopes])) {
    svg.append(element("path", { class: "bracket", d: `M${middle} ${frame.names - 11}v4` }));
    svg.append(nameAt(chart, middle, name, "name"));
  }
  const part = last - first + 1 < points ? `, ${first + 1} to ${last + 1} of ${points}` : "";
  svg.append(element("text", { x: frame.left, y: frame.height - 4 }, `program order →${part}`));
}

function nameAt({ frame }, middle, name, kind) {
  return element("text", { class: kind, x: middle, y: frame.names + 4, "text-anchor": "middle" }, name);
}

/** Stretches of one scope at the greatest depth at which they are wide enough on average. */
function scopeParts({ scopes, x, view: [first, last] }) {
  const paths = bridged(scopes.slice(first, last + 1)).map((scope) => scope.split("/"));
  for (let depth = Math.max(0, ...paths.map((path) => path.length)); depth > 0; depth -= 1) {
    const named = stretches(paths.map((path) => path.slice(0, depth).join("/"))).filter(({ name }) => name);
    const parts = named.map(({ name, begin, end }) => {
      return { name: name.split("/").at(-1), left: x(first + begin) + 1, right: x(first + end + 1) - 1 };
    });
    const width = parts.reduce((sum, part) => sum + part.right - part.left, 0);
    if (depth === 1 || width > NARROW * parts.length) return parts;
  }
  return [];
}

/** Names in the middle of their parts, widest parts first, without those that would lie over another. */
function placed(parts, { width: end }) {
  const found = [];
  for (const part of parts.slice().sort((a, b) => b.right - b.left - (a.right - a.left))) {
    const half = (LETTER * part.name.length) / 2;
    const middle = Math.min((part.left + part.right) / 2, end - half);
    const [left, right] = [middle - half, middle + half];
    if (found.every((other) => right + 4 < other.left || other.right + 4 < left)) {
      found.push({ name: part.name, middle, left, right });
    }
  }
  return found;
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
