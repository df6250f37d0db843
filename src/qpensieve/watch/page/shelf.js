// The list of policies: a small picture of each front, and what the policy is. A click shows it on the chosen side.

import { frontOf } from "./evaluations.js";
import { domainOf, html, set, svg } from "./dom.js";
import { colourAt, onTheme } from "./palette.js";
import { scale, span } from "./plot.js";

const [WIDTH, HEIGHT, EDGE] = [64, 44, 5];
const MOST_POINTS = 60;

export class Shelf {
  /** `choose(index)` is called with the number of a run. */
  constructor(box, choose) {
    Object.assign(this, { box, choose });
    this.runs = [];
    onTheme(() => this.build(this.runs));
    box.addEventListener("keydown", (event) => this.key(event));
  }

  /** Hides the list if there is only one run. */
  build(runs) {
    this.runs = runs;
    this.box.hidden = runs.length < 2;
    if (this.box.hidden) return;
    this.items = runs.map((run, index) => this.item(run, index));
    this.box.replaceChildren(...this.items);
    this.mark(this.shown ?? []);
  }

  item(run, index) {
    const name = run.name.replace(/^zoo:/, "");
    // A policy that comes with qpensieve is named after its domain.
    const about = [name === run.domain ? "" : domainOf(run), run.algo, run.is_training ? "training" : ""].filter(Boolean).join(" · ");
    const words = html("span", { class: "shelf-words" }, html("strong", {}, name), html("span", { class: "caption" }, about));
    const item = html("button", { type: "button", class: "shelf-item", title: `${run.name}: ${run.objectives.join(", ")}` }, thumbnail(run), words, html("span", { class: "shelf-sides" }));
    item.addEventListener("click", () => this.choose(index));
    return item;
  }

  /** `shown`: for each open side the number of its run. */
  mark(shown) {
    this.shown = shown;
    this.items?.forEach((item, index) => {
      const sides = shown.flatMap((run, side) => (run === index ? [side] : []));
      set(item, { "aria-pressed": sides.length > 0 });
      const badges = shown.length > 1 ? sides.map((side) => html("span", { class: `badge side-${side}` }, "AB"[side])) : [];
      item.lastElementChild.replaceChildren(...badges);
    });
  }

  key(event) {
    const at = this.items.indexOf(document.activeElement);
    const move = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (at < 0 || !move) return;
    event.preventDefault();
    this.items.at((at + move) % this.items.length).focus();
  }
}

/** A picture of the front in its first two objectives. */
function thumbnail(run) {
  const { preferences, returns } = frontOf(run, run.seeds[0], run.steps.at(-1), null);
  const picture = svg("svg", { class: "thumbnail", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT, "aria-hidden": "true" });
  const x = scale(span(returns.map((point) => point[0])), [EDGE, WIDTH - EDGE]);
  const y = scale(span(returns.map((point) => point[1])), [HEIGHT - EDGE, EDGE]);
  const every = Math.ceil(returns.length / MOST_POINTS);
  preferences.forEach((lam, p) => {
    if (p % every === 0) picture.append(svg("circle", { cx: x(returns[p][0]).toFixed(1), cy: y(returns[p][1]).toFixed(1), r: 2.4, fill: colourAt(lam) }));
  });
  return picture;
}
