// Learning curves: one thin line per seed, the seed that is shown drawn strongly, and the saved step that acts.

import { set, svg } from "./dom.js";
import { axes, onWidth, path, scale, span } from "./plot.js";

const HEIGHT = 170;
const MARGIN = { left: 58, right: 14, top: 10, bottom: 24 };

export class Curves {
  constructor(box) {
    this.box = box;
    onWidth(box, (width) => {
      this.width = width;
      this.draw();
    });
  }

  /** `curve`: steps [t], values [t][seed]; `seed`: index of the one shown; `goal`: where the run ends. */
  show(name, curve, seed, goal) {
    this.data = { name, curve, seed, goal };
    this.draw();
  }

  draw() {
    if (!this.data || !this.width) return;
    const { name, curve, seed, goal } = this.data;
    const frame = { left: MARGIN.left, top: MARGIN.top, right: this.width - MARGIN.right, bottom: HEIGHT - MARGIN.bottom };
    const x = { span: [0, Math.max(goal, curve.steps.at(-1) ?? 1)] };
    const y = { span: span(curve.values.flat()) };
    x.at = scale(x.span, [frame.left, frame.right]);
    y.at = scale(y.span, [frame.bottom, frame.top]);
    this.at = x.at;
    const words = `${name} over steps, ${curve.steps.length} evaluations`;
    const picture = svg("svg", { width: this.width, height: HEIGHT, viewBox: `0 0 ${this.width} ${HEIGHT}`, role: "img", "aria-label": words });
    picture.append(axes(frame, x, y));
    const seeds = curve.values[0]?.length ?? 0;
    const order = [...Array(seeds).keys()].sort((a, b) => (a === seed) - (b === seed));
    for (const s of order) {
      const points = curve.steps.map((step, t) => [x.at(step), y.at(curve.values[t][s])]).filter(([, py]) => Number.isFinite(py));
      const kind = s === seed ? "curve shown" : "curve";
      picture.append(svg("path", { class: kind, d: path(points) }));
      if (points.length === 1) picture.append(svg("circle", { class: kind, cx: points[0][0], cy: points[0][1], r: 3 }));
    }
    this.cursor = svg("line", { class: "cursor", y1: frame.top, y2: frame.bottom });
    picture.append(this.cursor);
    this.box.replaceChildren(picture);
    this.mark(this.step);
  }

  /** The saved step that acts. */
  mark(step) {
    this.step = step;
    if (this.cursor && step !== undefined) set(this.cursor, { x1: this.at(step), x2: this.at(step) });
  }
}
