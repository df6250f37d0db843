// What the plots share: round ticks, scales from numbers to pixels, axes.

import { svg } from "./dom.js";

/** Round numbers from `low` to `high`, about `count` of them. */
function ticks(low, high, count) {
  const rough = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999);
  const all = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) all.push(i * step);
  return all;
}

/** Smallest and largest of `values`, a little apart even when they are equal. */
export function span(values) {
  const finite = values.filter(Number.isFinite);
  if (!finite.length) return [0, 1];
  const [low, high] = [Math.min(...finite), Math.max(...finite)];
  const room = 0.06 * (high - low) || Math.max(1e-3, 0.1 * Math.abs(high));
  return [low - room, high + room];
}

export const scale = ([low, high], [from, to]) => (x) => from + ((x - low) / (high - low)) * (to - from);

export const path = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

/** Grid lines and numbers of both axes inside `frame` (left, top, right, bottom in pixels). */
export function axes(frame, x, y) {
  const group = svg("g", { class: "axes" });
  const tickCount = Math.max(2, Math.floor((frame.right - frame.left) / 70));
  for (const value of ticks(...x.span, tickCount)) {
    const at = x.at(value);
    group.append(
      svg("line", { x1: at, x2: at, y1: frame.top, y2: frame.bottom, class: value === 0 ? "zero" : "grid" }),
      svg("text", { x: at, y: frame.bottom + 15, "text-anchor": "middle" }, tick(value)),
    );
  }
  for (const value of ticks(...y.span, Math.max(2, Math.floor((frame.bottom - frame.top) / 44)))) {
    const at = y.at(value);
    group.append(
      svg("line", { x1: frame.left, x2: frame.right, y1: at, y2: at, class: value === 0 ? "zero" : "grid" }),
      svg("text", { x: frame.left - 7, y: at + 4, "text-anchor": "end" }, tick(value)),
    );
  }
  return group;
}

/** A round number, short: 0, −50, 2.5k, 300k, 1.5M. */
function tick(n) {
  const size = Math.abs(n);
  const [unit, name] = size >= 1e6 ? [1e6, "M"] : size >= 1e4 ? [1e3, "k"] : [1, ""];
  return (n < 0 ? "−" : "") + String(Number((size / unit).toPrecision(6))) + name;
}

/** Calls `draw(width)` when the box gets another width. */
export function onWidth(box, draw) {
  let last = 0;
  new ResizeObserver(([entry]) => {
    const width = Math.round(entry.contentRect.width);
    if (width && width !== last) draw((last = width));
  }).observe(box);
}
