// How the run learned: a curve, and under it the slider of saved steps, so that one can walk through the training.

import { byId, html, steps as stepsText, write } from "./dom.js";
import { Curves } from "./curves.js";

const NAMES = { ut: "utility", hv: "hypervolume" };
const PATIENCE_MS = 90;

export class Learning {
  /** `choose(step)`: a saved step, or "newest". */
  constructor(choose) {
    this.choose = choose;
    this.curves = new Curves(byId("curves"));
    this.slider = byId("at");
    this.metric = byId("metric");
    this.slider.addEventListener("input", () => this.slid());
    this.metric.addEventListener("change", () => this.draw());
    byId("newest").addEventListener("click", () => choose("newest"));
    byId("follow").addEventListener("change", () => {
      this.asked = null;
      this.follow();
    });
  }

  slid() {
    const step = this.run.steps[Number(this.slider.value)];
    byId("follow").checked = false;
    this.write(step);
    // Each step is a file to read: wait until the slider rests for a moment.
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.choose(step), PATIENCE_MS);
  }

  /** Asks for newer parameters, once for each step: until the answer comes, the old ones are still shown. */
  follow() {
    const newest = this.run.steps.at(-1);
    if (!byId("follow").checked || !(newest > this.at) || newest === this.asked) return;
    this.asked = newest;
    this.choose("newest");
  }

  /** `seed`: number of the seed shown; `at`: the saved step that acts. */
  show(run, seed, at) {
    const same = this.run === run && this.seed === seed;
    if (this.run?.name !== run.name) this.asked = null;
    Object.assign(this, { run, seed, at });
    if (!same) this.build();
    this.slider.value = run.steps.findLastIndex((step) => step <= at);
    this.write(at);
    const training = byId("training");
    training.hidden = !run.is_training;
    byId("newest").disabled = !(run.steps.at(-1) > at);
    this.follow();
  }

  build() {
    const { run } = this;
    this.slider.max = Math.max(0, run.steps.length - 1);
    this.slider.disabled = run.steps.length < 2;
    const known = Object.keys(NAMES).filter((name) => run.curves?.[name]);
    const chosen = known.includes(this.metric.value) ? this.metric.value : known[0];
    this.metric.replaceChildren(...known.map((name) => html("option", { value: name, selected: name === chosen }, NAMES[name])));
    this.draw();
  }

  draw() {
    const { run, metric } = this;
    const values = run.curves?.[metric.value];
    const has = Boolean(values?.length);
    byId("curves").hidden = !has;
    metric.parentElement.hidden = !has;
    const empty = byId("no-curves");
    empty.hidden = has;
    const why = run.kind === "run" ? "Nothing was evaluated yet." : "A saved agent has no log: there is no curve to show.";
    write(empty, why);
    write(byId("curves-caption"), has && run.seeds.length > 1 ? `Seed ${this.seed}; grey: the other seeds.` : "");
    if (has) this.curves.show(NAMES[metric.value], { steps: run.curves.steps, values }, run.seeds.indexOf(this.seed), run.goal ?? 0);
  }

  write(step) {
    this.curves.mark(step);
    const { run } = this;
    const last = run.steps.length < 2 ? " (the only one)" : step >= run.steps.at(-1) ? " (newest)" : "";
    write(byId("at-text"), step === undefined ? "–" : stepsText(step) + last);
    this.slider.setAttribute("aria-valuetext", step === undefined ? "none" : `step ${step}`);
  }
}
