// The front: what each evaluated preference brings, where the preference of the dial should land, and how the episode gets there.

import { html, number, set, svg, write } from "./dom.js";
import { colourAt, onTheme } from "./palette.js";
import { spoken } from "./preference.js";
import { axes, onWidth, path, scale, span } from "./plot.js";

const MARGIN = { left: 62, right: 14, top: 12, bottom: 40 };
const TRAIL_POINTS = 300;
const MOST_POINTS = 400;

/** Whether no other point is at least as good everywhere and better somewhere. */
function onFront(points, i) {
  return !points.some((other, j) => j !== i && other.every((x, o) => x >= points[i][o]) && other.some((x, o) => x > points[i][o]));
}

/** The way of an episode's returns so far, thinned as it grows so that it stays short. */
export class Trail {
  constructor() {
    this.points = [];
    this.every = 1;
    this.count = 0;
  }

  add(returns) {
    if (this.count++ % this.every) return;
    this.points.push(returns);
    if (this.points.length > TRAIL_POINTS) {
      this.points = this.points.filter((_, i) => i % 2 === 0);
      this.every *= 2;
    }
  }
}

export class Front {
  /** `choose(lam)` is called when a point is clicked, or chosen by Enter. */
  constructor({ box, tools, caption }, choose) {
    Object.assign(this, { box, tools, caption, choose });
    this.mode = "pair";
    this.pair = [0, 1];
    this.focused = 0;
    this.marks = [];
    this.beyond = [];
    this.data = null;
    onWidth(box, (width) => {
      this.width = width;
      this.draw();
    });
    onTheme(() => this.draw());
  }

  /** Long tables are thinned: some hundred points show the front as well as thousands do. */
  thin(data) {
    const every = Math.ceil(data.returns.length / MOST_POINTS);
    if (every < 2) return data;
    const kept = (_, p) => p % every === 0;
    const note = `${data.note} One in ${every} is drawn.`;
    return { ...data, note, preferences: data.preferences.filter(kept), returns: data.returns.filter(kept) };
  }

  /** `data`: objectives, labels, preferences [p][d], returns [p][d], exact [q][d] or null, note. */
  show(data) {
    const known = this.data?.objectives.join() === data.objectives.join();
    this.data = this.thin(data);
    this.beyond = [];
    if (!known) {
      this.marks = [];
      this.mode = data.objectives.length > 3 ? "all" : "pair";
      this.pair = [0, 1];
      this.buildTools();
    }
    this.focused = Math.min(this.focused, Math.max(0, this.data.returns.length - 1));
    this.draw();
  }

  buildTools() {
    const { objectives } = this.data;
    this.tools.replaceChildren();
    if (objectives.length < 3) return;
    const axis = (which) => {
      const options = objectives.map((name, i) => html("option", { value: i, selected: i === this.pair[which] }, name));
      const select = html("select", { "aria-label": which ? "Vertical axis" : "Horizontal axis", id: which ? "front-y" : "front-x" }, ...options);
      select.addEventListener("change", () => {
        this.pair[which] = Number(select.value);
        this.draw();
      });
      return select;
    };
    const pair = html("span", { class: "pair" }, axis(0), html("span", { "aria-hidden": "true" }, "×"), axis(1));
    const all = html("button", { type: "button", class: "small", id: "front-all" }, "All objectives");
    const show = (mode) => {
      this.mode = mode;
      set(all, { "aria-pressed": mode === "all" });
      pair.hidden = mode === "all";
    };
    all.addEventListener("click", () => {
      show(this.mode === "all" ? "pair" : "all");
      this.draw();
    });
    show(this.mode);
    this.tools.append(pair, all);
  }

  draw() {
    if (!this.data || !this.width) return;
    const { returns, note } = this.data;
    write(this.caption, note);
    this.height = Math.round(Math.min(300, Math.max(210, 0.68 * this.width)));
    this.picture = svg("svg", {
      width: this.width, height: this.height, viewBox: `0 0 ${this.width} ${this.height}`, role: "group",
      "aria-label": `${returns.length} evaluated preferences; arrow keys go from one to the next, Enter chooses it`,
    });
    this.frame = { left: MARGIN.left, top: MARGIN.top, right: this.width - MARGIN.right, bottom: this.height - MARGIN.bottom };
    this.squares = [];
    if (this.mode === "all") this.drawAll();
    else this.drawPair();
    this.listen();
    const held = this.box.contains(document.activeElement);
    this.box.replaceChildren(this.picture);
    if (held) this.points[this.focused]?.focus({ preventScroll: true });
    if (this.marks.length) this.mark(this.marks);
  }

  drawPair() {
    const { preferences, returns, labels, exact, archive } = this.data;
    const [i, j] = this.pair;
    // The start of every episode, (0, 0), is in the picture: the return grows from there.
    const [low, high] = this.limits;
    const x = { span: span([low[i], high[i]]) };
    const y = { span: span([low[j], high[j]]) };
    x.at = scale(x.span, [this.frame.left, this.frame.right]);
    y.at = scale(y.span, [this.frame.bottom, this.frame.top]);
    this.place = (point) => [x.at(point[i]), y.at(point[j])];
    this.picture.append(
      axes(this.frame, x, y),
      svg("text", { class: "axis-name", x: this.frame.right, y: this.height - 6, "text-anchor": "end" }, `${labels[i]} →`),
      svg("text", { class: "axis-name", transform: `translate(12 ${this.frame.top}) rotate(-90)`, "text-anchor": "end" }, `${labels[j]} →`),
    );
    for (const point of exact ?? []) {
      const [cx, cy] = this.place(point);
      this.picture.append(svg("rect", { class: "exact", x: cx - 5, y: cy - 5, width: 10, height: 10, transform: `rotate(45 ${cx} ${cy})` }));
    }
    this.squares = (archive ?? []).map((point) => {
      const [cx, cy] = this.place(point);
      return svg("rect", { class: "archived", x: cx - 4, y: cy - 4, width: 8, height: 8 });
    });
    this.picture.append(...this.squares);
    this.points = preferences.map((lam, p) => {
      const [cx, cy] = this.place(returns[p]);
      return svg("circle", { class: onFront(returns, p) ? "point" : "point dominated", cx, cy, r: 5, fill: colourAt(lam) });
    });
  }

  drawAll() {
    const { preferences, returns, objectives } = this.data;
    const { left, right, top, bottom } = { ...this.frame, left: 34, right: this.width - 34, top: 24, bottom: this.height - 54 };
    const [least, most] = this.limits;
    const columns = objectives.map((name, o) => {
      const range = [least[o], most[o] === least[o] ? least[o] + 1 : most[o]];
      return { name, range, x: left + ((right - left) * o) / (objectives.length - 1), at: scale(range, [bottom, top]) };
    });
    this.place = (point) => columns.map(({ x, at }, o) => [x, at(point[o])]);
    columns.forEach(({ name, range, x }, o) => {
      // Of many, every other name stands a line lower: they are longer than their column is wide.
      const low = this.height - (o % 2 && columns.length > 3 ? 4 : 20);
      this.picture.append(
        svg("line", { class: "column", x1: x, x2: x, y1: top, y2: bottom }),
        svg("text", { x, y: top - 9, "text-anchor": "middle" }, number(range[1])),
        svg("text", { x, y: bottom + 15, "text-anchor": "middle" }, number(range[0])),
        svg("text", { class: "axis-name", x, y: low, "text-anchor": "middle" }, name),
      );
    });
    this.points = preferences.map((lam, p) => svg("path", { class: "line", d: path(this.place(returns[p])), stroke: colourAt(lam) }));
  }

  listen() {
    const { preferences, returns, objectives } = this.data;
    const chosen = svg("g", {});
    this.points.forEach((element, p) => {
      const words = `Preference ${spoken(objectives, preferences[p])}; return ${returns[p].map(number).join(", ")}`;
      set(element, { tabindex: p === this.focused ? 0 : -1, role: "button", "aria-label": words });
      element.append(svg("title", {}, words));
      element.addEventListener("click", () => this.pick(p));
      element.addEventListener("keydown", (event) => this.key(event, p));
      chosen.append(element);
    });
    this.layer = svg("g", { class: `marks ${this.mode}`, "aria-hidden": "true" });
    this.picture.append(chosen, this.layer);
    this.layers = [];
  }

  pick(p) {
    this.focus(p);
    this.choose(this.data.preferences[p]);
  }

  key(event, p) {
    const move = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (move) this.focus((p + move + this.points.length) % this.points.length);
    else if (event.key === "Enter" || event.key === " ") this.pick(p);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  focus(p) {
    this.points[this.focused]?.setAttribute("tabindex", -1);
    this.focused = p;
    this.points[p].setAttribute("tabindex", 0);
    this.points[p].focus({ preventScroll: true });
  }

  /** `marks`: for each side shown the trail of its episode, its returns so far and the expected ones, or null. */
  mark(marks) {
    this.marks = marks;
    if (!this.layer) return;
    this.widen(marks);
    this.layer.classList.toggle("two", marks.length > 1);
    while (this.layers.length < marks.length) this.layers.push(this.addLayer(this.layers.length));
    this.squares.forEach((square, i) => square.classList.toggle("acts", marks.some(({ serving }) => serving === i)));
    this.layers.forEach((layer, i) => {
      layer.group.style.display = i < marks.length ? "" : "none";
      if (marks[i]) this.putMark(layer, marks[i]);
    });
  }

  /** Where an episode went beyond all that was evaluated, the axes go further still: they need not at once again. */
  widen(marks) {
    const [low, high] = this.limits;
    const out = marks.filter(({ returns }) => returns.some((x, o) => x < low[o] || x > high[o]));
    if (!out.length) return;
    this.beyond.push(...out.map(({ returns }) => returns.map((x) => 1.2 * x)));
    const rows = this.data.objectives.map((_, o) => this.beyond.map((point) => point[o]));
    this.beyond = [rows.map((row) => Math.min(...row)), rows.map((row) => Math.max(...row))];
    this.draw();
  }

  /** Least and most of each objective that the axes reach. */
  get limits() {
    const { returns, exact, archive, objectives } = this.data;
    const all = [...returns, ...(exact ?? []), ...(archive ?? []), objectives.map(() => 0), ...this.beyond];
    const rows = objectives.map((_, o) => all.map((point) => point[o]).filter(Number.isFinite));
    return [rows.map((row) => Math.min(...row)), rows.map((row) => Math.max(...row))];
  }

  addLayer(side) {
    const trail = svg("path", { class: "trail" });
    const way = svg("path", { class: "way" });
    const head = svg("circle", { class: "head", r: 4.5 });
    const ring = svg("circle", { class: "ring", r: 10 });
    const promise = svg("path", { class: "promise" });
    const group = svg("g", { class: `side-${side}` }, promise, way, trail, head, ring);
    group.dataset.side = side;
    this.layer.append(group);
    return { group, trail, way, head, ring, promise };
  }

  putMark({ trail, way, head, ring, promise }, { points, returns, expected, nearby }) {
    if (this.mode === "all") {
      set(promise, { d: expected ? path(this.place(expected)) : "" });
      set(trail, { d: path(this.place(returns)) });
      for (const mark of [head, ring, way]) mark.style.display = "none";
      return;
    }
    const here = this.place(returns);
    set(trail, { d: path([...points.map(this.place), here]) });
    set(head, { cx: here[0].toFixed(1), cy: here[1].toFixed(1) });
    ring.style.display = way.style.display = expected ? "" : "none";
    if (!expected) return;
    const there = this.place(expected);
    set(ring, { cx: there[0].toFixed(1), cy: there[1].toFixed(1), "data-point": nearby });
    set(way, { d: path([here, there]) });
  }
}
