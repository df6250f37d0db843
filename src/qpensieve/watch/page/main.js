// The page of `qpensieve watch`: what the server says goes to the stages and panels, what people do goes to the server.

import { Asking, askedOf } from "./asking.js";
import { Bars, Episodes } from "./returns.js";
import { Card } from "./card.js";
import { Connection } from "./connection.js";
import { Controls } from "./controls.js";
import { Dial } from "./dial.js";
import { Front } from "./front.js";
import { Learning } from "./learning.js";
import { Shelf } from "./shelf.js";
import { Sides } from "./sides.js";
import { byId, domainOf, share, steps as stepsText, write } from "./dom.js";
import { corner, equal, mixOf } from "./preference.js";
import { expectedAt, frontOf } from "./evaluations.js";

const PANEL_SECONDS = 0.1;
const WALK_SECONDS = 6;
const WALK_PERIOD = 0.05;
const KEPT_DELAYS = 1000;
const STILL_MS = 100;

class Watch {
  constructor() {
    this.connection = new Connection({
      opened: (about) => this.opened(about),
      event: (event) => this.event(event),
      frame: (buffer) => {
        this.sides.receive(buffer, performance.now() / 1000);
        this.wake();
      },
      lost: (reason, wait) => this.lost(reason, wait),
    });
    this.controls = new Controls((message) => this.sides.ask(message), {
      equal: () => this.table && this.prefer(equal(this.table.objectives.length)),
      corner: (i) => i < this.table?.objectives.length && this.prefer(corner(this.table.objectives.length, i)),
      sweep: () => this.walk(),
      calibrate: () => this.sides.ask({ calibrated: !this.sides.current?.state?.calibrated }),
      compare: () => this.sides.toggle(),
    });
    const places = { stages: byId("stages"), which: byId("which"), button: byId("compare") };
    this.sides = new Sides(places, (message) => this.connection.send(message), {
      changed: () => this.refresh(),
      turned: (side, seq, since) => this.waiting.push({ side, seq, since }),
    });
    this.shelf = new Shelf(byId("shelf"), (index) => this.sides.pick(index));
    this.asking = new Asking(byId("asking"), (calibrated) => this.sides.ask({ calibrated }));
    this.dial = new Dial(byId("dial-box"), (lam) => this.prefer(lam));
    this.front = new Front({ box: byId("front"), tools: byId("front-tools"), caption: byId("front-caption") }, (lam) => this.prefer(lam));
    this.bars = new Bars(byId("bars"));
    this.episodes = new Episodes({ table: byId("episodes-box"), body: byId("episodes"), head: byId("episodes-head"), empty: byId("no-episodes") });
    this.card = new Card(byId("card"));
    this.learning = new Learning((at) => this.connection.send({ side: this.sides.chosen, at }));
    this.waiting = [];
    /** Milliseconds from a turn of the dial to the first picture that knows of it. */
    this.delays = [];
    this.pictures = 0;
    this.last = 0;
    this.panelsAt = 0;
  }

  start() {
    this.connection.open();
    requestAnimationFrame((now) => this.picture(now));
    for (const name of ["pointermove", "keydown", "wheel"]) window.addEventListener(name, () => this.wake(), { passive: true });
    window.addEventListener("pagehide", () => this.connection.close());
    window.addEventListener("pageshow", (event) => event.persisted && this.connection.open());
    document.addEventListener("visibilitychange", () => this.sides.rest(document.hidden));
  }

  opened(about) {
    this.controls.notice("");
    this.controls.status("live", "live");
    this.sides.meet(about);
    this.shelf.build(about.runs);
  }

  lost(reason, wait) {
    this.controls.status("lost", "no connection");
    this.controls.notice(`${reason} Trying again in ${wait} s.`, true);
  }

  event(event) {
    const { sides } = this;
    const take = {
      ready: () => sides.ready(event),
      ground: () => sides.at(event.side)?.stage.ground(event.shapes),
      state: () => sides.state(event),
      episode: () => this.episodes.add(event, sides.runs[event.run]),
      run: () => {
        sides.renew(event.index, event.run);
        this.shelf.build(sides.runs);
      },
      refused: () => this.controls.notice(`Refused: ${event.reason}`),
      failed: () => this.failed(event),
    };
    take[event.event]?.();
    if (["ready", "state", "run"].includes(event.event)) this.refresh();
  }

  /** A simulation stopped; it may have been before it was ever ready: then its side has no run yet, the second one no place. */
  failed({ side: number, run, reason }) {
    const { sides } = this;
    const side = sides.at(number);
    const text = `The simulation stopped: ${/[.!?]$/.test(reason) ? reason : `${reason}.`}`;
    if (side) side.stage.say(`${text} “Restart” begins it again.`);
    else this.controls.notice(text, true);
    if (side && !side.run) this.heading(sides.runs[run]);
  }

  /** Everything that does not change from frame to frame. */
  refresh() {
    const { sides } = this;
    const side = sides.current;
    if (!side?.run || !side.state) return;
    const { run, state } = side;
    const { objectives } = run;
    this.heading(run);
    this.shelf.mark(sides.open.map(({ index }) => index));
    this.controls.show(state, run);
    this.card.show(run);
    byId("learning").hidden = Boolean(run.card);
    this.learning.show(run, state.seed, state.at);
    for (const each of sides.open) this.evaluated(each);
    if (side.table !== this.table || sides.open.length !== this.several) {
      [this.table, this.several] = [side.table, sides.open.length];
      const whose = sides.open.length > 1 ? `Side ${side.letter}: ` : "";
      this.front.show({ ...side.table, note: whose + side.table.note });
    }
    this.dial.build(objectives, this.front.data.preferences);
    this.dial.set(side.lam);
    const alike = sides.alike();
    this.bars.build(objectives, alike.length);
    this.episodes.build(run, sides.open.length);
    this.panels();
  }

  /** What was evaluated of the run, seed and saved step of a side; the same object as long as these are the same. */
  evaluated(side) {
    if (!side.state) return;
    const key = [side.run.name, side.state.seed, side.state.at, side.archive?.length].join();
    if (side.tableKey === key && side.tableRun === side.run) return;
    const table = frontOf(side.run, side.state.seed, side.state.at, side.archive);
    Object.assign(side, { tableKey: key, tableRun: side.run, table });
  }

  heading(run) {
    write(byId("title"), domainOf(run));
    const progress = run.is_training ? ` · step ${stepsText(run.done)} of ${stepsText(run.goal)}` : "";
    write(byId("subtitle"), `${run.algo} · ${run.name}${progress}`);
    document.title = `${domainOf(run)} – qpensieve watch`;
    // Said aloud when it changes, so without the number of the step.
    if (run.is_training) this.controls.status("training", "training");
    else this.controls.status("live", "live");
  }

  /** The person wants this preference on the chosen side. */
  prefer(lam, byHand = true) {
    if (byHand) this.walk(false);
    this.sides.prefer(lam);
    this.dial.set(lam);
    this.panels();
  }

  /** Goes from corner to corner of the simplex by itself, or stops. */
  walk(go = !this.walking) {
    go &&= Boolean(this.sides.current?.lam);
    this.walking = go && { at: 0, sent: 0, from: this.sides.current.lam };
    byId("sweep").setAttribute("aria-pressed", String(go));
  }

  stroll(now, seconds) {
    const walking = this.walking;
    const d = walking.from.length;
    if (this.sides.current.lam?.length !== d) return this.walk(false);
    walking.at += seconds / WALK_SECONDS;
    if (now - walking.sent < WALK_PERIOD) return;
    walking.sent = now;
    const leg = Math.floor(walking.at);
    const start = leg === 0 ? walking.from : corner(d, (leg - 1) % d);
    this.prefer(mixOf(start, corner(d, leg % d), walking.at - leg), false);
  }

  /** The next picture: at once, or, where nothing moves, after a while; then browser and graphics card can rest. */
  schedule(isStill) {
    const draw = () => {
      this.sleeping = null;
      requestAnimationFrame((now) => this.picture(now));
    };
    if (isStill) this.sleeping = setTimeout(draw, STILL_MS);
    else draw();
  }

  wake() {
    if (!this.sleeping) return;
    clearTimeout(this.sleeping);
    this.schedule(false);
  }

  picture(milliseconds) {
    const now = performance.now() / 1000;
    const seconds = Math.min(0.1, Math.max(0, (milliseconds - this.last) / 1000));
    this.last = milliseconds;
    const { open } = this.sides;
    try {
      if (this.walking) this.stroll(now, seconds);
      for (const side of open) this.seen(side.number, side.stage.draw(now, seconds, side.state?.speed ?? 1));
    } finally {
      // Whatever was wrong with this picture, there is a next one.
      this.schedule(!this.walking && open.length > 0 && open.every(({ stage }) => stage.isStill));
    }
    this.pictures++;
    if (now - this.panelsAt < PANEL_SECONDS) return;
    this.panelsAt = now;
    for (const side of this.sides.open) side.stage.annotate();
    this.panels();
  }

  seen(side, seq) {
    if (seq < 0) return;
    this.waiting = this.waiting.filter((turn) => {
      const done = turn.side === side && turn.seq <= seq;
      if (done) this.delays.push(performance.now() - turn.since);
      return !done;
    });
    if (this.delays.length > KEPT_DELAYS) this.delays.shift();
  }

  /** What grows with the episode: a few times a second is enough for the eye, and spares the page's layout. */
  panels() {
    const { table } = this;
    if (this.sides.current?.lam?.length !== table?.objectives.length) return;
    const alike = this.sides.alike().filter((side) => side.table);
    const marks = alike.map((side) => {
      const zero = table.objectives.map(() => 0);
      const { returns = zero, serving = -1 } = side.stage.latest ?? {};
      return { returns, serving, points: side.stage.trail.points, ...expectedAt(side.table, askedOf(side)) };
    });
    if (!marks.length || marks.length !== this.sides.alike().length) return;
    this.front.mark(marks);
    this.bars.show(marks, (o) => alike.flatMap((side) => side.table.returns.map((point) => point[o])));
    this.serving(this.sides.current);
    this.asking.show(this.sides.current);
  }

  serving({ run, stage, archive }) {
    const number = stage.latest?.serving ?? -1;
    const own = run.own_preferences;
    const line = byId("serving");
    line.hidden = number < 0 || !(own || archive);
    if (line.hidden) return;
    if (own) write(line, `One agent per preference: the one of ${own[number].map(share).join(" · ")} acts.`);
    else write(line, `Member ${number + 1} of ${archive.length} in the archive acts.`);
  }
}

const watch = new Watch();
watch.start();
// For the browser's console and for tests; nothing in the page reads it.
window.watch = watch;
