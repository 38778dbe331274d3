// The part of the program that a chart shows: a range that is dragged, the buttons, and the keys.

const FEWEST = 4; // points of a view
const DRAGGED = 6; // pixels from which a press is a drag

function zoom(chart, first, last) {
  const count = Math.min(chart.points, Math.max(FEWEST, last - first + 1));
  const begin = Math.round(Math.min(Math.max(0, first), chart.points - count));
  chart.view = [begin, begin + Math.round(count) - 1];
  draw(chart, chart.highest);
  for (const button of chart.root.querySelectorAll(".zoom button")) {
    const whole = count >= chart.points;
    button.disabled = button.dataset.zoom === "in" ? chart.points <= FEWEST || count <= FEWEST : whole;
  }
}

/** Shows a share of the points in view, around the point that is chosen or the middle. */
function zoomBy(chart, share) {
  const [first, last] = chart.view;
  const chosen = (chart.hovered || chart.pinned || {}).point;
  const middle = first <= chosen && chosen <= last ? chosen : (first + last) / 2;
  const count = Math.round((last - first + 1) * share);
  zoom(chart, Math.round(middle - count / 2), Math.round(middle - count / 2) + count - 1);
}

function pan(chart, share) {
  const [first, last] = chart.view;
  const by = Math.sign(share) * Math.max(1, Math.round(Math.abs(share) * (last - first + 1)));
  zoom(chart, first + by, last + by);
}

const whole = (chart) => zoom(chart, 0, chart.points - 1);

const ZOOM_KEYS = {
  "+": (chart) => zoomBy(chart, 0.5),
  "=": (chart) => zoomBy(chart, 0.5),
  "-": (chart) => zoomBy(chart, 2),
  0: whole,
  ArrowLeft: (chart) => pan(chart, -0.25),
  ArrowRight: (chart) => pan(chart, 0.25),
};
const ZOOM_BUTTONS = { in: ZOOM_KEYS["+"], out: ZOOM_KEYS["-"], all: whole };

function listenZoom(chart) {
  for (const button of chart.root.querySelectorAll(".zoom button")) {
    button.addEventListener("click", () => ZOOM_BUTTONS[button.dataset.zoom](chart));
  }
  chart.svg.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !ZOOM_KEYS[event.key]) return;
    event.preventDefault();
    ZOOM_KEYS[event.key](chart);
  });
  listenDrag(chart);
}

/** A press that moves sideways selects a range; one that does not is a click on what lies there. */
function listenDrag(chart) {
  let start;
  const range = (event) => [start, chartX(chart, event)].sort((a, b) => a - b);
  chart.svg.addEventListener("pointerdown", (event) => {
    start = event.button === 0 ? chartX(chart, event) : undefined;
  });
  chart.svg.addEventListener("pointermove", (event) => {
    if (start === undefined) return;
    const [left, right] = range(event);
    if (right - left < DRAGGED) return;
    chart.svg.setPointerCapture(event.pointerId);
    chart.range.setAttribute("visibility", "visible");
    chart.range.setAttribute("x", left);
    chart.range.setAttribute("width", right - left);
  });
  chart.svg.addEventListener("pointerup", (event) => {
    if (start === undefined) return;
    const [left, right] = range(event);
    start = undefined;
    if (right - left < DRAGGED) pin(chart, pick(chart, event));
    else zoom(chart, pointAt(chart, left), pointAt(chart, right));
  });
  chart.svg.addEventListener("pointercancel", () => {
    start = undefined;
    chart.range.setAttribute("visibility", "hidden");
  });
}

/** Pixels from the left of the drawing, within the frame. */
function chartX({ svg, frame }, event) {
  return Math.min(frame.right, Math.max(frame.left, event.clientX - svg.getBoundingClientRect().left));
}

function pointAt({ frame, view: [first, last] }, left) {
  const share = (left - frame.left) / (frame.right - frame.left);
  return Math.min(last, first + Math.floor(share * (last - first + 1)));
}
