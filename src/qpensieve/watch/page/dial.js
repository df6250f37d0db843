// The preference dial: a slider for two objectives, a triangle for three, sliders that share 1 among them for more.

import { html, set, share, svg, write } from "./dom.js";
import { channelsOf, classOf, colourAt, onTheme } from "./palette.js";
import { corner, mixOf, normalised, spoken, withShare } from "./preference.js";

export class Dial {
  /** `change(lam)` is called for every move of the person's, not for `set`. */
  constructor(box, change) {
    this.box = box;
    this.change = change;
    onTheme(() => this.control?.paint?.());
  }

  /** `evaluated`: preferences that are marked on it. The control itself stays while the objectives do: it may be in use. */
  build(objectives, evaluated) {
    if (objectives.join() !== this.names) {
      this.names = objectives.join();
      this.box.replaceChildren();
      const make = { 2: slider, 3: triangle }[objectives.length] ?? sliders;
      this.control = make(this.box, objectives, (lam) => {
        this.control.set(lam);
        this.change(lam);
      });
      this.control.paint?.();
      this.evaluated = null;
    }
    if (evaluated !== this.evaluated) this.control.mark?.(evaluated);
    this.evaluated = evaluated;
  }

  set(lam) {
    this.control?.set(lam);
  }
}

function readouts(objectives) {
  const values = objectives.map(() => html("output", { class: "share" }));
  const rows = objectives.map((name, i) =>
    html("li", { class: classOf(i) }, html("span", { class: "swatch" }), html("span", { class: "name" }, name), values[i]),
  );
  return { list: html("ul", { class: "shares" }, ...rows), values };
}

function slider(box, objectives, turned) {
  const name = `Preference: from ${objectives[0]} to ${objectives[1]}`;
  const input = html("input", { type: "range", id: "dial", min: 0, max: 1, step: 0.01, "aria-label": name });
  const { list, values } = readouts(objectives);
  const marks = svg("svg", { class: "dial-marks", "aria-hidden": "true", viewBox: "0 0 100 6", preserveAspectRatio: "none" });
  const track = html("div", { class: "dial-slider" }, input, html("div", { class: "dial-marks-box" }, marks));
  box.append(list, track);
  input.addEventListener("input", () => turned([1 - Number(input.value), Number(input.value)]));
  return {
    set(lam) {
      input.value = lam[1];
      set(input, { "aria-valuetext": spoken(objectives, lam) });
      input.style.setProperty("--thumb", colourAt(lam));
      values.forEach((output, i) => write(output, share(lam[i])));
    },
    mark(evaluated) {
      marks.replaceChildren(...evaluated.map(([, x]) => svg("line", { x1: 100 * x, x2: 100 * x, y1: 0, y2: 6 })));
    },
    paint() {
      const stops = [0, 0.25, 0.5, 0.75, 1].map((x) => colourAt([1 - x, x]));
      input.style.setProperty("--track", `linear-gradient(to right, ${stops.join(", ")})`);
    },
  };
}

// Corners: the first objective above, the second below on the left, the third below on the right.
const CORNERS = [[150, 14], [14, 250], [286, 250]];
const [WIDTH, HEIGHT] = [300, 264];
const TURN_STEP = 0.02;
const MOVES = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };

const toPixels = (lam) => [0, 1].map((axis) => lam.reduce((sum, x, i) => sum + x * CORNERS[i][axis], 0));

function toShares([x, y]) {
  const [[ax, ay], [bx, by], [cx, cy]] = CORNERS;
  const area = (by - cy) * (ax - cx) + (cx - bx) * (ay - cy);
  const a = ((by - cy) * (x - cx) + (cx - bx) * (y - cy)) / area;
  const b = ((cy - ay) * (x - cx) + (ax - cx) * (y - cy)) / area;
  return [a, b, 1 - a - b];
}

/** The point of the triangle that is nearest to where the pointer is, which may be outside. */
function inside(pixels) {
  const shares = toShares(pixels);
  if (shares.every((x) => x >= 0)) return shares;
  let best = null;
  for (let i = 0; i < 3; i++) {
    const [p, q] = [CORNERS[i], CORNERS[(i + 1) % 3]];
    const along = [q[0] - p[0], q[1] - p[1]];
    const t = ((pixels[0] - p[0]) * along[0] + (pixels[1] - p[1]) * along[1]) / (along[0] ** 2 + along[1] ** 2);
    const point = mixOf(p, q, Math.min(1, Math.max(0, t)));
    const far = Math.hypot(point[0] - pixels[0], point[1] - pixels[1]);
    if (!best || far < best.far) best = { far, shares: mixOf(corner(3, i), corner(3, (i + 1) % 3), Math.min(1, Math.max(0, t))) };
  }
  return normalised(best.shares);
}

function triangle(box, objectives, turned) {
  let lam = [1 / 3, 1 / 3, 1 / 3];
  const { list, values } = readouts(objectives);
  const colours = html("canvas", { width: WIDTH, height: HEIGHT, "aria-hidden": "true" });
  const handle = svg("circle", {
    class: "handle", id: "dial", r: 11, tabindex: 0, role: "slider",
    "aria-label": `Preference among ${objectives.join(", ")}`, "aria-valuemin": 0, "aria-valuemax": 100,
  });
  const dots = svg("g", { "aria-hidden": "true" });
  const outline = svg("polygon", { class: "outline", points: CORNERS.map((c) => c.join(",")).join(" ") });
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}` }, outline, dots, handle);
  const plate = html("div", { class: "dial-triangle" }, colours, picture);
  const names = objectives.map((name, i) => html("span", { class: `corner corner-${i}` }, name));
  box.append(list, html("div", { class: "dial-plate" }, ...names, plate));

  const point = (event) => {
    const at = picture.getBoundingClientRect();
    return [((event.clientX - at.left) / at.width) * WIDTH, ((event.clientY - at.top) / at.height) * HEIGHT];
  };
  picture.addEventListener("pointerdown", (event) => {
    picture.setPointerCapture(event.pointerId);
    turned(inside(point(event)));
    handle.focus({ preventScroll: true });
    event.preventDefault();
  });
  picture.addEventListener("pointermove", (event) => {
    if (picture.hasPointerCapture(event.pointerId)) turned(inside(point(event)));
  });
  handle.addEventListener("keydown", (event) => {
    const move = MOVES[event.key];
    if (!move) return;
    event.preventDefault();
    const length = (event.shiftKey ? 5 : 1) * TURN_STEP * (CORNERS[2][0] - CORNERS[1][0]);
    turned(inside(toPixels(lam).map((x, axis) => x + move[axis] * length)));
  });
  return {
    set(next) {
      lam = next;
      const [x, y] = toPixels(lam);
      set(handle, { cx: x.toFixed(2), cy: y.toFixed(2), "aria-valuenow": Math.round(100 * lam[0]), "aria-valuetext": spoken(objectives, lam) });
      handle.style.fill = colourAt(lam);
      values.forEach((output, i) => write(output, share(lam[i])));
    },
    mark(evaluated) {
      dots.replaceChildren(...evaluated.map(toPixels).map(([x, y]) => svg("circle", { class: "evaluated", cx: x, cy: y, r: 1.6 })));
    },
    paint: () => paintTriangle(colours),
  };
}

function paintTriangle(canvas) {
  const context = canvas.getContext("2d");
  const picture = context.createImageData(WIDTH, HEIGHT);
  for (let y = 0; y < HEIGHT; y++) {
    for (let x = 0; x < WIDTH; x++) {
      const shares = toShares([x + 0.5, y + 0.5]);
      // A little beyond the edge, which the outline covers: no steps are seen.
      if (shares.some((s) => s < -0.003)) continue;
      picture.data.set([...channelsOf(normalised(shares)), 255], 4 * (y * WIDTH + x));
    }
  }
  context.putImageData(picture, 0, 0);
}

function sliders(box, objectives, turned) {
  let lam = objectives.map(() => 1 / objectives.length);
  // What the others' proportions were when this slider began to move: drawn to 1 and back, they are as they were.
  let base = { index: -1, lam };
  const rows = objectives.map((name, i) => {
    const input = html("input", { type: "range", min: 0, max: 1, step: 0.01, id: i ? `dial-${i}` : "dial", "aria-label": `Share of ${name}` });
    const output = html("output", { class: "share", for: input.id });
    input.addEventListener("input", () => {
      if (base.index !== i) base = { index: i, lam };
      turned(withShare(base.lam, i, Number(input.value)));
    });
    const label = html("label", { for: input.id, class: "name" }, name);
    const row = html("li", { class: classOf(i) }, html("span", { class: "swatch" }), label, input, output);
    return { input, output, row };
  });
  box.append(html("ul", { class: "linked" }, ...rows.map(({ row }) => row)));
  return {
    set(next) {
      // Not the person's own move: proportions start anew.
      if (base.index >= 0 && Math.abs(next[base.index] - Number(rows[base.index].input.value)) > 0.006) base = { index: -1, lam: next };
      lam = next;
      rows.forEach(({ input, output }, i) => {
        if (Math.abs(Number(input.value) - lam[i]) > 0.004) input.value = lam[i];
        input.style.setProperty("--filled", `${100 * lam[i]}%`);
        write(output, share(lam[i]));
      });
    },
  };
}
