// One side: the world of one simulation, drawn 60 times a second, with what is known about it written over it.

import { fixed, html, write } from "./dom.js";
import { theme } from "./palette.js";
import { Scene3d } from "./scene3d.js";
import { SceneImage, ScenePlane } from "./scene2d.js";
import { Timeline, mixBodies, mixPlane } from "./timeline.js";
import { Trail } from "./front.js";

const FLAGS = { last: 1, first: 2, paused: 4 };
const TURN_DEGREES = 6;
const HEADER = 8;
const KEYS = {
  ArrowLeft: (camera) => camera.turn(-TURN_DEGREES, 0),
  ArrowRight: (camera) => camera.turn(TURN_DEGREES, 0),
  ArrowUp: (camera) => camera.turn(0, -TURN_DEGREES),
  ArrowDown: (camera) => camera.turn(0, TURN_DEGREES),
  "+": (camera) => camera.zoom(0.85),
  "-": (camera) => camera.zoom(1 / 0.85),
  Home: (camera) => camera.reset(),
};

// Robots that live in a plane are seen from the side, others from a corner and above.
const fromTheSide = { azimuth: 90, elevation: -11, distance: 5.6 };
const fromAbove = { azimuth: 60, elevation: -26, distance: 7.5 };

export class Stage {
  constructor(side) {
    this.side = side;
    this.message = html("p", { class: "stage-message", hidden: true });
    // What stops a simulation before it is ready must be seen too.
    this.box = html("div", { class: "canvas-box" }, this.message);
    this.clock = html("span", { class: "hud-clock" });
    this.pace = html("span", { class: "hud-pace" });
    this.trail = new Trail();
    this.latest = null;
    /** Whether the last picture was the same as the one before. */
    this.isStill = false;
  }

  /** Shows another run: its own canvas, because a canvas is 2D or 3D for life. */
  open(run) {
    this.run = run;
    this.frameHead = HEADER + 2 * run.objectives.length + run.scene.action_size;
    this.latest = this.pose = this.paced = this.drawn = null;
    this.trail = new Trail();
    this.scene?.release?.();
    this.canvas = html("canvas", { tabindex: 0, role: "img", "aria-label": `${run.domain}, moving` });
    const hud = html("div", { class: "hud" }, this.clock, this.pace);
    this.box.replaceChildren(this.canvas, hud, this.message);
    this.say(run.scene.note ?? "");
    try {
      this.makeScene(run.scene);
    } catch (error) {
      this.scene = null;
      this.say(error.message);
    }
  }

  makeScene(scene) {
    this.timeline = null;
    if (scene.kind === "bodies") {
      this.payloadSize = 3 + 7 * scene.geoms.length;
      this.scene = new Scene3d(this.canvas, scene.geoms);
      this.timeline = new Timeline(mixBodies);
      this.listen();
    } else if (scene.kind === "plane") {
      this.payloadSize = 3 * scene.parts.length + (scene.signals?.length ?? 0);
      this.scene = new ScenePlane(this.canvas, scene);
      this.timeline = new Timeline(mixPlane(scene.parts.length));
    } else this.scene = new SceneImage(this.canvas, scene);
  }

  listen() {
    const { canvas, scene } = this;
    canvas.setAttribute("aria-label", `${this.run.domain}, moving. Arrow keys turn the camera, plus and minus zoom, Home resets it.`);
    canvas.addEventListener("webglcontextrestored", () => (this.drawn = null));
    canvas.addEventListener("pointerdown", (event) => canvas.setPointerCapture(event.pointerId));
    canvas.addEventListener("pointermove", (event) => {
      if (canvas.hasPointerCapture(event.pointerId)) scene.camera.turn(-0.4 * event.movementX, -0.3 * event.movementY);
    });
    canvas.addEventListener("dblclick", () => scene.camera.reset());
    // The wheel scrolls the page, unless the picture was chosen before.
    canvas.addEventListener("wheel", (event) => {
      if (document.activeElement !== canvas) return;
      event.preventDefault();
      scene.camera.zoom(Math.exp(0.001 * event.deltaY));
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => {
      const act = KEYS[event.key];
      if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
      act(scene.camera);
      event.preventDefault();
      event.stopPropagation();
    });
  }

  close() {
    this.scene?.release?.();
  }

  say(text) {
    write(this.message, text);
    this.message.hidden = !text;
  }

  ground(shapes) {
    this.drawn = null;
    this.scene?.ground?.(shapes);
  }

  /** Takes a frame in; `now` in seconds. */
  receive(buffer, now, speed) {
    // A frame of the run that was shown before may still be on its way.
    const rest = buffer.byteLength / 4 - this.frameHead;
    if (rest < 0 || (this.timeline && rest !== this.payloadSize)) return;
    const head = new Float32Array(buffer, 0, this.frameHead);
    const d = this.run.objectives.length;
    const [, seq, flags, t, episode, steps, serving] = head;
    const at = (from, count) => Array.from(head.subarray(from, from + count));
    const frame = {
      seq, t, episode, steps, serving, arrived: now,
      first: Boolean(flags & FLAGS.first), last: Boolean(flags & FLAGS.last), paused: Boolean(flags & FLAGS.paused),
      returns: at(HEADER, d), lam: at(HEADER + d, d), action: at(HEADER + 2 * d, this.run.scene.action_size),
    };
    if (frame.first || episode !== this.latest?.episode || t < this.latest.t) this.begin();
    if (steps !== this.latest?.steps || frame.first) this.trail.add(frame.returns);
    this.latest = frame;
    if (this.timeline) {
      frame.payload = new Float32Array(buffer, 4 * this.frameHead);
      if (!this.pose) this.scene?.camera?.settle(isFlat(frame.payload) ? fromTheSide : fromAbove);
      this.pose ??= frame.payload;
      this.scene?.visit?.(frame.payload);
      this.timeline.push(frame, now, speed);
    } else if (buffer.byteLength > 4 * this.frameHead) this.scene?.read?.(buffer.slice(4 * this.frameHead));
  }

  begin() {
    this.trail = new Trail();
    this.scene?.begins?.();
  }

  /** Draws this moment; returns the `seq` that the picture knows. */
  draw(now, seconds, speed) {
    if (!this.scene || !this.latest) return -1;
    if (!this.timeline) {
      this.scene.draw();
      return this.latest.seq;
    }
    const payload = this.timeline.sample(now, speed);
    if (!payload) return -1;
    this.pose = payload;
    // Where nothing moves, nothing is drawn: a paused page costs nothing.
    const { canvas, latest } = this;
    const view = [theme(), canvas.clientWidth, canvas.clientHeight, window.devicePixelRatio, this.scene.camera?.key].join();
    this.isStill = latest.paused && this.drawn?.frame === latest && this.drawn.view === view;
    this.drawn = { frame: latest, view };
    if (!this.isStill) this.scene.draw(payload, seconds, theme());
    return this.timeline.seq;
  }

  /** Writes time and pace: a few times a second, so that they can be read. */
  annotate() {
    if (!this.latest) return;
    const { t, steps, last } = this.latest;
    const limit = this.run.max_steps ? ` of ${this.run.max_steps}` : "";
    write(this.clock, `${t.toFixed(1)} s · step ${steps}${limit}${last ? " · end" : ""}`);
    if (this.run.scene.kind !== "bodies" || !this.pose) return write(this.pace, "");
    const before = this.paced;
    if (before?.t === t) return;
    const x = this.pose[0];
    const isFirst = !before || before.t > t;
    const pace = isFirst ? 0 : (x - before.x) / (t - before.t);
    this.paced = { t, x, pace: isFirst || before.isFirst ? pace : 0.6 * before.pace + 0.4 * pace, isFirst };
    write(this.pace, `${fixed(x, 1)} m · ${fixed(this.paced.pace, 1)} m/s`);
  }
}

/** Whether all geoms lie in one vertical plane, as those of Hopper and HalfCheetah do. */
function isFlat(pose) {
  for (let y = 4; y < pose.length; y += 7) {
    if (Math.abs(pose[y] - pose[1]) > 0.15) return false;
  }
  return true;
}
