// From frames, which come when they come, to the picture of this moment.
//
// Fast worlds send 50 to 60 frames a second: they are shown one frame late, so that there are two to interpolate between.
// Slow worlds (a boat moves five times a second) would lag by a whole move: there the picture glides to each new frame.

const KEPT = 40;
const SLOW_SECONDS = 0.06;
const GLIDE_SECONDS = 0.16;
const MOST_WAIT = 0.045;

/** Mixes two payloads into `out`; how is the scene's matter: quaternions, angles and lengths mix differently. */
export class Timeline {
  constructor(mix) {
    this.mix = mix;
    this.clear();
  }

  clear() {
    this.frames = [];
    this.offset = null;
    this.shown = null;
    this.seq = -1;
  }

  /** `frame`: t (seconds of the episode), payload, seq, paused, first; `now` in seconds. */
  push(frame, now, speed) {
    const last = this.frames.at(-1);
    // What came before another episode, another speed or a pause says nothing about when the next one should be shown.
    const elsewhere = frame.first || (last && (frame.t < last.t || frame.episode !== last.episode));
    if (elsewhere || speed !== this.speed || (last?.paused && !frame.paused)) this.frames = [];
    if (elsewhere) this.shown = null;
    this.speed = speed;
    const previous = this.frames.at(-1);
    frame.gap = previous ? (frame.t - previous.t) / speed : 0;
    frame.late = now - frame.t / speed;
    frame.arrived = now;
    // An answer without a step: the world stands where it stood, only what it knows is new.
    if (previous && frame.t === previous.t) this.frames.pop();
    this.frames.push(frame);
    if (this.frames.length > KEPT) this.frames.shift();
    this.start = this.shown ? this.shown.slice() : null;
  }

  get newest() {
    return this.frames.at(-1) ?? null;
  }

  /** The payload to draw now. Sets `seq` to the newest message that the picture knows. */
  sample(now, speed) {
    const newest = this.newest;
    if (!newest) return null;
    if (this.shown?.length !== newest.payload.length) this.shown = newest.payload.slice();
    const gap = this.gap();
    if (newest.paused || this.frames.length < 2) this.hold(newest);
    else if (gap > SLOW_SECONDS) this.glide(newest, now, gap);
    else this.interpolate(now, speed, gap);
    return this.shown;
  }

  gap() {
    const gaps = this.frames.slice(-8).map((frame) => frame.gap).filter((gap) => gap > 0);
    return gaps.length ? gaps.reduce((sum, gap) => sum + gap) / gaps.length : 0;
  }

  hold(frame) {
    this.shown.set(frame.payload);
    this.seq = frame.seq;
    this.offset = null;
  }

  glide(newest, now, gap) {
    const share = Math.min(1, (now - newest.arrived) / Math.min(GLIDE_SECONDS, 0.9 * gap));
    const eased = 1 - (1 - share) ** 2;
    this.mix(this.start ?? newest.payload, newest.payload, eased, this.shown);
    this.seq = newest.seq;
  }

  interpolate(now, speed, gap) {
    // Most frames are there in time; to wait for the few late ones would make all of them late.
    const lateness = this.frames.slice(-30).map((frame) => frame.late).sort((a, b) => a - b);
    const usual = lateness[Math.floor(0.75 * (lateness.length - 1))];
    const wanted = Math.min(usual, lateness[0] + MOST_WAIT) + gap;
    const jump = this.offset === null || Math.abs(wanted - this.offset) > 0.25;
    this.offset = jump ? wanted : this.offset + 0.06 * (wanted - this.offset);
    const t = speed * (now - this.offset);
    let next = this.frames.findIndex((frame) => frame.t > t);
    if (next < 0) return this.show(this.newest);
    if (next === 0) return this.show(this.frames[0]);
    const [a, b] = [this.frames[next - 1], this.frames[next]];
    this.mix(a.payload, b.payload, (t - a.t) / (b.t - a.t), this.shown);
    this.seq = b.seq;
  }

  show(frame) {
    this.shown.set(frame.payload);
    this.seq = frame.seq;
  }
}

/** Centre of mass, then place and quaternion of each geom. */
export function mixBodies(a, b, share, out) {
  for (let i = 0; i < a.length; i++) out[i] = a[i] + share * (b[i] - a[i]);
  for (let q = 6; q < a.length; q += 7) {
    const dot = a[q] * b[q] + a[q + 1] * b[q + 1] + a[q + 2] * b[q + 2] + a[q + 3] * b[q + 3];
    const sign = dot < 0 ? -1 : 1;
    let sum = 0;
    for (let i = q; i < q + 4; i++) {
      out[i] = a[i] + share * (sign * b[i] - a[i]);
      sum += out[i] * out[i];
    }
    const length = Math.sqrt(sum) || 1;
    for (let i = q; i < q + 4; i++) out[i] /= length;
  }
}

/** Place and angle of each of `parts` parts, then signals. */
export function mixPlane(parts) {
  return (a, b, share, out) => {
    for (let i = 0; i < a.length; i++) out[i] = a[i] + share * (b[i] - a[i]);
    for (let i = 2; i < 3 * parts; i += 3) {
      const turn = Math.atan2(Math.sin(b[i] - a[i]), Math.cos(b[i] - a[i]));
      out[i] = a[i] + share * turn;
    }
  };
}
