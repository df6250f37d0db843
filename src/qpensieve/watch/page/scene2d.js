// Worlds in a plane (landers, boats) and pictures that the environment draws itself, on a 2D canvas.

import { theme } from "./palette.js";

const WAY_POINTS = 1000;

const ROLES = {
  light: {
    beyond: "#eef1f5", water: "#cfe3f3", rock: "#8d8578", treasure: "#f2b632", terrain: "#c9ced6", sky: "#dbe5f1", pad: "#7d8796",
    flag: "#c98a00", boat: "#b5382f", lander: "#5b52c9", leg: "#7d76d6", edge: "#1b2430", text: "#3a2a00", way: "#1b2430", flame: "#f08a24",
  },
  dark: {
    beyond: "#12161c", water: "#16324a", rock: "#4a463f", treasure: "#d99e1f", terrain: "#3b424d", sky: "#0d1117", pad: "#8b95a5",
    flag: "#e0b040", boat: "#ff8a78", lander: "#a49cff", leg: "#8b84e0", edge: "#dfe6ef", text: "#241a00", way: "#dfe6ef", flame: "#ffb35c",
  },
};

class Flat {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
  }

  /** Clears the canvas, and puts the rectangle `width` x `height` into its middle; returns the size of a pixel in it. */
  begin(width, height) {
    const { canvas, context } = this;
    const ratio = Math.min(window.devicePixelRatio || 1, 2);
    const [w, h] = [Math.round(canvas.clientWidth * ratio), Math.round(canvas.clientHeight * ratio)];
    if (canvas.width !== w || canvas.height !== h) [canvas.width, canvas.height] = [w, h];
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.fillStyle = ROLES[theme()].beyond;
    context.fillRect(0, 0, w, h);
    const scale = Math.min(w / width, h / height);
    context.translate((w - scale * width) / 2, (h - scale * height) / 2);
    context.scale(scale, scale);
    return ratio / scale;
  }
}

export class ScenePlane extends Flat {
  constructor(canvas, scene) {
    super(canvas);
    Object.assign(this, { view: scene.view, down: scene.y_down, parts: scene.parts, signals: scene.signals ?? [] });
    this.shapes = [];
    this.begins();
  }

  ground(shapes) {
    this.shapes = shapes;
  }

  begins() {
    this.way = [];
    this.place = null;
  }

  /** Remembers the way: where the first part was before it set out for `place`, which the picture has yet to reach. */
  visit([x, y]) {
    if (this.place) this.way.push(this.place);
    if (this.way.length > WAY_POINTS) this.way = this.way.filter((_, i) => i % 2 === 0);
    this.place = [x, y];
  }

  draw(payload) {
    const [x0, y0, x1, y1] = this.view;
    const { context } = this;
    this.pixel = this.begin(x1 - x0, y1 - y0);
    this.colours = ROLES[theme()];
    if (this.down) context.translate(-x0, -y0);
    else {
      context.translate(-x0, y1);
      context.scale(1, -1);
    }
    context.beginPath();
    context.rect(x0, y0, x1 - x0, y1 - y0);
    context.clip();
    context.fillStyle = this.colours.sky;
    context.fill();
    for (const shape of this.shapes) this.shape(shape);
    this.follow(payload);
    this.flames(payload);
    this.parts.forEach((part, i) => this.part(part, payload.subarray(3 * i, 3 * i + 3)));
  }

  outline({ shape, points, centre = [0, 0], radius }) {
    const { context } = this;
    context.beginPath();
    if (shape === "disc") context.arc(centre[0], centre[1], radius, 0, 2 * Math.PI);
    else points.forEach(([x, y], i) => (i ? context.lineTo(x, y) : context.moveTo(x, y)));
    if (shape === "polygon") context.closePath();
  }

  shape(shape) {
    const { context, colours } = this;
    const colour = colours[shape.role] ?? colours.terrain;
    this.outline(shape);
    if (shape.shape === "line") {
      context.strokeStyle = colour;
      context.lineWidth = 2.5 * this.pixel;
      context.stroke();
      return;
    }
    context.fillStyle = colour;
    context.fill();
    if (shape.role === "terrain" || shape.role === "rock") {
      // Neighbours must touch: no seam of the background between them.
      context.strokeStyle = colour;
      context.lineWidth = this.pixel;
      context.stroke();
    }
    if (shape.label) this.label(shape);
  }

  label({ centre, points, radius, label }) {
    const { context } = this;
    const [x, y] = centre ?? [0, 1].map((axis) => points.reduce((sum, p) => sum + p[axis], 0) / points.length);
    context.save();
    context.translate(x, y);
    if (!this.down) context.scale(1, -1);
    context.fillStyle = this.colours.text;
    context.font = `600 ${(radius ?? 0.5) * 0.68}px system-ui, sans-serif`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillText(label, 0, 0);
    context.restore();
  }

  /** Draws the way that the first part has come in this episode, to where it is now. */
  follow([x, y]) {
    const { context } = this;
    this.outline({ points: [...this.way, [x, y]] });
    context.strokeStyle = this.colours.way;
    context.globalAlpha = 0.35;
    context.lineWidth = 1.6 * this.pixel;
    context.lineJoin = "round";
    context.setLineDash([5 * this.pixel, 4 * this.pixel]);
    context.stroke();
    context.setLineDash([]);
    context.globalAlpha = 1;
  }

  part({ shape, points, radius, role }, [x, y, angle]) {
    const { context, colours } = this;
    context.save();
    context.translate(x, y);
    context.rotate(this.down ? -angle : angle);
    this.outline({ shape, points, radius });
    context.fillStyle = colours[role] ?? colours.lander;
    context.fill();
    context.strokeStyle = colours.edge;
    context.lineWidth = 1.2 * this.pixel;
    context.lineJoin = "round";
    context.stroke();
    context.restore();
  }

  /** Fire of a lander's engines, as long as they work hard. */
  flames(payload) {
    const signal = (name) => {
      const i = this.signals.indexOf(name);
      return i < 0 ? 0 : payload[3 * this.parts.length + i];
    };
    const [main, side] = [signal("main"), signal("side")];
    if (!main && !side) return;
    const { context } = this;
    const xs = this.parts[0].points.map((p) => p[0]);
    const ys = this.parts[0].points.map((p) => p[1]);
    const [width, height] = [Math.max(...xs), Math.max(...ys)];
    context.save();
    context.translate(payload[0], payload[1]);
    context.rotate(payload[2]);
    context.fillStyle = this.colours.flame;
    if (main > 0) this.flame([-0.45 * width, -0.6 * height], [0.45 * width, -0.6 * height], [0, -height * (0.9 + 2.2 * main)]);
    // The engine on the left pushes to the right, and the other way round.
    const from = -Math.sign(side) * width * 0.9;
    if (side) this.flame([from, 0.75 * height], [from, 0.35 * height], [from * (1.2 + 1.1 * Math.abs(side)), 0.55 * height]);
    context.restore();
  }

  flame(...points) {
    this.outline({ shape: "polygon", points });
    this.context.fill();
  }
}

export class SceneImage extends Flat {
  constructor(canvas, { width, height, type }) {
    super(canvas);
    Object.assign(this, { width, height, type });
    this.picture = null;
  }

  /** Pictures that come while one is being read are dropped: the newest is what counts. */
  async read(bytes) {
    if (this.reading) return;
    this.reading = true;
    try {
      const picture = await createImageBitmap(new Blob([bytes], { type: this.type }));
      this.picture?.close();
      this.picture = picture;
    } finally {
      this.reading = false;
    }
  }

  draw() {
    if (!this.picture) return;
    this.begin(this.width, this.height);
    this.context.imageSmoothingQuality = "high";
    this.context.drawImage(this.picture, 0, 0, this.width, this.height);
  }
}
