// One simulation, or two beside each other. The dial, the run and the saved step belong to the chosen side; playing belongs to both.

import { html, set, share, write } from "./dom.js";
import { Stage } from "./stage.js";

const LETTERS = ["A", "B"];
// Least time between two preferences that a side sends: the server refuses 240 a second, the rate of fast screens.
const TURN_MS = 16;

export class Sides {
  /**
   * `send(message)` returns the message's number, or null. `changed()` is called when another side is chosen.
   * `turned(side, seq, since)` is called when a preference was sent; a person chose it at the time `since`.
   */
  constructor({ stages, which, button }, send, { changed, turned }) {
    Object.assign(this, { box: stages, which, button, send, changed, turned });
    this.sides = [];
    this.hasSecond = false;
    this.chosen = 0;
    this.which.replaceChildren(
      ...LETTERS.map((letter, i) => {
        const choose = html("button", { type: "button", class: `side-${i}`, "aria-label": `The dial turns side ${letter}` }, letter);
        choose.addEventListener("click", () => this.choose(i));
        return choose;
      }),
    );
  }

  get open() {
    return this.sides.filter((side) => side?.run);
  }

  get current() {
    return this.sides[this.chosen];
  }

  at(number) {
    return this.sides[number];
  }

  /** Sides whose objectives are those of the chosen side: only they share its front and bars. Side A is first. */
  alike() {
    const names = this.current?.run?.objectives.join();
    return this.open.filter((side) => side.run.objectives.join() === names && side.lam);
  }

  /** A connection was made. Sides that were open before it was lost are asked for again, as they were. */
  meet(about) {
    this.runs = about.runs;
    this.button.disabled = about.sides < 2;
    const before = this.sides.filter((side) => side?.state);
    for (const side of before) {
      const { number, index, state, lam } = side;
      const run = this.runs[index];
      if (!run) continue;
      const { seed, at, sampled, calibrated, speed, paused } = state;
      // The first run is open on the first side already.
      if (number || index) this.send({ side: number, open: index });
      this.send({ side: number, seed, w: lam, sampled, speed, paused });
      if (run.steps.includes(at)) this.send({ side: number, at });
      if (calibrated && run.calibration) this.send({ side: number, calibrated });
    }
    if (!this.sides[0]) this.add(0);
  }

  add(number) {
    const stage = new Stage(number);
    const badge = html("span", { class: `badge side-${number}` }, LETTERS[number]);
    const name = html("span", { class: "stage-run" });
    const lam = html("span", { class: "stage-lam" });
    const element = html("article", { class: "stage" }, html("header", {}, badge, name, lam), stage.box);
    element.addEventListener("pointerdown", () => this.open.length > 1 && this.choose(number));
    this.sides[number] = { number, letter: LETTERS[number], stage, element, name, lamText: lam, run: null, state: null, lam: null, turned: -1 };
    this.box.append(element);
  }

  ready({ side: number, run: index, archive }) {
    if (number === 1 && !this.hasSecond) return;
    if (!this.sides[number]) this.add(number);
    const side = this.sides[number];
    const run = this.runs[index];
    if (!side.run || side.index !== index) {
      side.stage.open(run);
      // The state that belongs to this run comes next.
      side.lam = side.state = side.table = side.tableKey = null;
    }
    Object.assign(side, { index, run, archive });
    side.stage.say(run.scene.note ?? "");
    write(side.name, run.name);
    this.arrange();
  }

  state(event) {
    const side = this.sides[event.side];
    if (!side) return;
    side.state = event;
    // A state on its way while the dial is turned further would turn it back.
    if (event.seq >= side.turned || !side.lam) this.lamOf(side, event.w);
    side.turned = event.seq >= side.turned ? -1 : side.turned;
  }

  lamOf(side, lam) {
    side.lam = lam;
    write(side.lamText, lam.map(share).join(" · "));
  }

  renew(index, run) {
    this.runs[index] = run;
    for (const side of this.open) {
      if (side.index === index) side.run = side.stage.run = run;
    }
  }

  receive(buffer, now) {
    const side = this.sides[new Float32Array(buffer, 0, 1)[0]];
    if (side?.run) side.stage.receive(buffer, now, side.state?.speed ?? 1);
  }

  ask(message) {
    for (const side of this.sides.filter(Boolean)) {
      // A side that failed before it was ready takes nothing but a restart.
      if (!side.run && !("reset" in message)) continue;
      if (message.push && !side.run.scene.can_push) continue;
      if ("seed" in message && !side.run.seeds.includes(message.seed)) continue;
      if (message.calibrated && !side.run.calibration) continue;
      this.send({ side: side.number, ...message });
    }
  }

  /** Sends a preference now, or in a moment if one has just been sent: then the newest counts. */
  prefer(lam) {
    const side = this.current;
    const now = performance.now();
    this.lamOf(side, lam);
    if (side.waiting) return;
    side.turned = Infinity;
    const wait = (side.sent ?? -TURN_MS) + TURN_MS - now;
    const deliver = () => {
      side.waiting = null;
      side.sent = performance.now();
      const seq = side.lam && this.send({ side: side.number, w: side.lam });
      side.turned = seq ?? -1;
      if (seq) this.turned(side.number, seq, now);
    };
    if (wait <= 0) deliver();
    else side.waiting = setTimeout(deliver, wait);
  }

  /** Shows another run on the chosen side. */
  pick(index) {
    if (this.current?.index !== index) this.send({ side: this.chosen, open: index });
  }

  choose(number) {
    if (!this.sides[number]?.run) return;
    this.chosen = number;
    this.arrange();
    this.changed();
  }

  /** Opens or closes the second side. Both begin the same episode. */
  toggle() {
    if (this.sides[1]) return this.leave();
    const { run, state, lam } = this.sides[0];
    if (!run || !state) return;
    const other = this.runs.length > 1 ? 1 : 0;
    this.hasSecond = true;
    this.send({ side: 1, open: other });
    const { seed, at, sampled, calibrated, speed } = state;
    if (this.runs[other] === run) this.send({ side: 1, at, calibrated });
    if (this.runs[other].objectives.length === lam.length) this.send({ side: 1, w: opposite(lam) });
    if (this.runs[other].seeds.includes(seed)) this.send({ side: 1, seed });
    this.send({ side: 1, sampled, speed });
    this.send({ side: 0, seed });
    this.send({ side: 0, paused: false });
  }

  leave() {
    this.hasSecond = false;
    this.send({ side: 1, close: true });
    this.sides[1].stage.close();
    this.sides[1].element.remove();
    this.sides.length = 1;
    this.choose(0);
  }

  /** Pauses the sides while the page is hidden, and continues them. */
  rest(hidden) {
    for (const side of this.open) {
      if (hidden && side.state && !side.state.paused) {
        side.resting = true;
        this.send({ side: side.number, paused: true });
      } else if (!hidden && side.resting) {
        side.resting = false;
        this.send({ side: side.number, paused: false });
      }
    }
  }

  arrange() {
    const two = this.open.length > 1;
    this.box.classList.toggle("two", two);
    this.which.hidden = !two;
    set(this.button, { "aria-pressed": two });
    [...this.which.children].forEach((button, i) => set(button, { "aria-pressed": i === this.chosen }));
    for (const side of this.open) side.element.classList.toggle("chosen", two && side.number === this.chosen);
  }
}

/** A preference that is far from this one: nearly all for the objective that it cares least about. */
function opposite(lam) {
  const least = lam.indexOf(Math.min(...lam));
  return lam.map((_, i) => (i === least ? 0.9 : 0.1 / (lam.length - 1)));
}
