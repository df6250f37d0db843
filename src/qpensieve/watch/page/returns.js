// The episode so far against what the evaluation promises, objective by objective; and the episodes before it.

import { html, number, percents, write } from "./dom.js";
import { classOf } from "./palette.js";
import { scale, span } from "./plot.js";

const EPISODES_KEPT = 50;
const ENDS = { terminated: "ended", truncated: "time limit", reset: "restarted" };

export class Bars {
  constructor(box) {
    this.box = box;
  }

  build(objectives, sides) {
    const key = JSON.stringify([objectives, sides]);
    if (key === this.key) return;
    this.key = key;
    this.rows = objectives.map((name, o) => this.row(name, o, sides));
    this.box.replaceChildren(...this.rows.map(({ row }) => row));
  }

  row(name, o, sides) {
    const lanes = Array.from({ length: sides }, (_, side) => {
      const fill = html("span", { class: "fill" });
      const tick = html("span", { class: "tick" });
      const value = html("span", { class: "value" });
      const promised = html("span", { class: "promised" });
      const track = html("span", { class: "track", "aria-hidden": "true" }, fill, tick);
      const badge = sides > 1 ? [html("span", { class: `badge side-${side}` }, "AB"[side])] : [];
      const lane = html("div", { class: "lane" }, ...badge, track, html("span", { class: "figures" }, value, promised));
      return { fill, tick, value, promised, lane };
    });
    const row = html("li", { class: classOf(o) }, html("span", { class: "name" }, name), ...lanes.map(({ lane }) => lane));
    return { row, lanes };
  }

  /** `marks`: of each side, its returns so far and the expected ones (or null); `range(o)`: values an objective takes. */
  show(marks, range) {
    this.rows.forEach(({ lanes }, o) => {
      const values = marks.flatMap(({ returns, expected }) => [returns[o], expected?.[o] ?? 0]);
      const at = scale(span([...range(o), ...values, 0]), [0, 100]);
      lanes.forEach((lane, side) => this.lane(lane, marks[side], o, at));
    });
  }

  lane({ fill, tick, value, promised }, { returns, expected }, o, at) {
    const [zero, now] = [at(0), at(returns[o])];
    fill.style.left = `${Math.min(zero, now)}%`;
    fill.style.width = `${Math.abs(now - zero)}%`;
    write(value, number(returns[o]));
    tick.style.display = expected ? "" : "none";
    if (expected) tick.style.left = `${at(expected[o])}%`;
    write(promised, expected ? `of ${number(expected[o])}` : "");
  }
}

export class Episodes {
  constructor({ table, body, head, empty }) {
    Object.assign(this, { table, body, head, empty });
    this.past = [];
  }

  /** Shows the episodes of the run's domain; with two sides each says whose it was. */
  build({ domain, objectives }, sides) {
    const key = JSON.stringify([domain, objectives, sides]);
    if (key === this.key) return;
    Object.assign(this, { key, sides, domain });
    const columns = [...(sides > 1 ? ["Side"] : []), "Preference, %", ...objectives, "Steps", "End"];
    this.head.replaceChildren(html("tr", {}, ...columns.map((name) => html("th", { scope: "col" }, name))));
    this.body.replaceChildren(...this.past.filter((each) => each.domain === domain).map(({ event }) => this.row(event)));
    this.fill();
  }

  add(event, { domain }) {
    this.past.unshift({ event, domain });
    this.past.length = Math.min(this.past.length, EPISODES_KEPT);
    if (domain !== this.domain) return;
    this.body.prepend(this.row(event));
    if (this.body.rows.length > EPISODES_KEPT) this.body.rows[EPISODES_KEPT].remove();
    this.fill();
  }

  row({ side, w, returns, steps, ended, is_mixed: isMixed, sampled }) {
    const cells = [
      ...(this.sides > 1 ? [html("td", {}, html("span", { class: `badge side-${side}` }, "AB"[side]))] : []),
      html("td", { class: "lam" }, percents(w) + (isMixed ? " *" : "") + (sampled ? " ~" : "")),
      ...returns.map((x) => html("td", {}, number(x))),
      html("td", {}, String(steps)),
      html("td", { class: "end" }, ENDS[ended] ?? ended),
    ];
    return html("tr", {}, ...cells);
  }

  fill() {
    const has = this.body.rows.length > 0;
    this.empty.hidden = has;
    this.table.hidden = !has;
  }
}
