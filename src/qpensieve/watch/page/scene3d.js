// Robots in WebGL 2: every geom is one of three unit meshes, the floor is one square with a pattern that shows speed, and the
// shadow is the robot drawn once more, pressed flat onto the floor along the light.

import { Camera } from "./camera.js";
import { GEOMS, meshes } from "./shapes.js";

const LIGHT = [-0.32, -0.42, 0.85];
// A shadow of four lights close together has a soft edge.
const SHADOW_LIGHTS = [[0.02, 0.03], [-0.03, 0.02], [0.03, -0.02], [-0.02, -0.03]];
const FLOOR_METRES = 60;
// Without a graphics card: fewer pixels and one light, from so many seconds between two pictures on.
const SLOW_SECONDS = 1 / 25;
const SLOW_SCALE = 0.75;

const BODY_VERTEX = `#version 300 es
layout(location = 0) in vec3 position;
layout(location = 1) in vec3 normal;
layout(location = 2) in float cap;
uniform mat4 camera;
uniform vec4 turn;
uniform vec3 place, scale, light;
uniform float halfLength, flatten;
out vec3 worldNormal, worldPlace;
vec3 rotate(vec3 v) { return v + 2.0 * cross(turn.yzw, cross(turn.yzw, v) + turn.x * v); }
void main() {
  vec3 local = position * scale + vec3(0.0, 0.0, cap * halfLength);
  vec3 world = rotate(local) + place;
  if (flatten > 0.0) world = vec3(world.xy - light.xy * (max(world.z, 0.0) / light.z), 0.002);
  worldNormal = rotate(normal / scale);
  worldPlace = world;
  gl_Position = camera * vec4(world, 1.0);
}`;

const BODY_FRAGMENT = `#version 300 es
precision highp float;
in vec3 worldNormal, worldPlace;
uniform vec3 colour, sky, ground, eye, light;
uniform float flatten;
uniform vec4 shadow;
out vec4 pixel;
void main() {
  if (flatten > 0.0) { pixel = shadow; return; }
  vec3 n = normalize(worldNormal);
  vec3 toEye = normalize(eye - worldPlace);
  float sun = max(dot(n, light), 0.0);
  float shine = pow(max(dot(n, normalize(light + toEye)), 0.0), 40.0);
  float rim = pow(1.0 - max(dot(n, toEye), 0.0), 3.0);
  vec3 around = mix(ground, sky, 0.5 + 0.5 * n.z);
  vec3 lit = colour * (0.62 * around + 0.72 * sun) + vec3(0.16 * shine) + 0.10 * rim * sky;
  pixel = vec4(lit, 1.0);
}`;

const FLOOR_VERTEX = `#version 300 es
layout(location = 0) in vec2 corner;
uniform mat4 camera;
uniform vec3 centre;
uniform float metres;
out vec2 place;
void main() {
  place = centre.xy + corner * metres;
  gl_Position = camera * vec4(place, 0.0, 1.0);
}`;

// Tiles of a metre, averaged over the pixel so that they do not flicker far away, and a line every five metres.
const FLOOR_FRAGMENT = `#version 300 es
precision highp float;
in vec2 place;
uniform vec3 tile, otherTile, line, haze, centre;
uniform float range;
out vec4 pixel;
vec2 triangle(vec2 x) { vec2 h = fract(x * 0.5) - 0.5; return 1.0 - 2.0 * abs(h); }
void main() {
  vec2 width = max(fwidth(place), 0.001);
  vec2 tiles = (triangle(place + 0.5 * width) - triangle(place - 0.5 * width)) / width;
  float checker = 0.5 - 0.5 * clamp(tiles.x, -1.0, 1.0) * clamp(tiles.y, -1.0, 1.0);
  vec2 toLine = abs(fract(place / 5.0 + 0.5) - 0.5) * 5.0;
  vec2 lines = (1.0 - smoothstep(vec2(0.0), 0.02 + width, toLine)) * clamp(0.06 / width, 0.0, 1.0);
  vec3 floorColour = mix(mix(tile, otherTile, checker), line, 0.8 * max(lines.x, lines.y));
  float far = smoothstep(0.25, 1.0, length(place - centre.xy) / range);
  pixel = vec4(mix(floorColour, haze, far), 1.0);
}`;

// The sky begins at the horizon with the haze that the floor ends in.
const SKY_VERTEX = `#version 300 es
layout(location = 0) in vec2 corner;
out float height;
void main() {
  height = corner.y;
  gl_Position = vec4(corner, 0.999, 1.0);
}`;
const SKY_FRAGMENT = `#version 300 es
precision mediump float;
in float height;
uniform vec3 haze, zenith;
uniform float horizon;
out vec4 pixel;
void main() { pixel = vec4(mix(haze, zenith, clamp((height - horizon) * 1.1, 0.0, 1.0)), 1.0); }`;

const THEMES = {
  light: {
    sky: [1.0, 1.0, 1.04], ground: [0.72, 0.7, 0.68], haze: [0.925, 0.94, 0.96], zenith: [0.80, 0.86, 0.93],
    tile: [0.87, 0.89, 0.915], otherTile: [0.82, 0.845, 0.875], line: [0.66, 0.71, 0.77], shadow: [0.12, 0.16, 0.24, 0.1],
  },
  dark: {
    sky: [0.92, 0.95, 1.05], ground: [0.42, 0.42, 0.46], haze: [0.105, 0.118, 0.145], zenith: [0.06, 0.07, 0.09],
    tile: [0.165, 0.18, 0.21], otherTile: [0.135, 0.15, 0.178], line: [0.27, 0.3, 0.35], shadow: [0, 0, 0, 0.16],
  },
};

const unit = (v) => v.map((x) => x / Math.hypot(...v));

function compile(gl, vertex, fragment) {
  const program = gl.createProgram();
  for (const [kind, source] of [[gl.VERTEX_SHADER, vertex], [gl.FRAGMENT_SHADER, fragment]]) {
    const shader = gl.createShader(kind);
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    gl.attachShader(program, shader);
  }
  gl.linkProgram(program);
  if (!gl.getProgramParameter(program, gl.LINK_STATUS) && !gl.isContextLost()) {
    throw new Error(`The 3D picture cannot be drawn: ${gl.getProgramInfoLog(program)}`);
  }
  const at = {};
  const count = gl.getProgramParameter(program, gl.ACTIVE_UNIFORMS) ?? 0;
  for (let i = 0; i < count; i++) {
    const { name } = gl.getActiveUniform(program, i);
    at[name] = gl.getUniformLocation(program, name);
  }
  return { program, at };
}

function upload(gl, { vertices, indices }, layout) {
  const array = gl.createVertexArray();
  gl.bindVertexArray(array);
  gl.bindBuffer(gl.ARRAY_BUFFER, gl.createBuffer());
  gl.bufferData(gl.ARRAY_BUFFER, new Float32Array(vertices), gl.STATIC_DRAW);
  const stride = 4 * layout.reduce((sum, size) => sum + size, 0);
  let offset = 0;
  layout.forEach((size, location) => {
    gl.enableVertexAttribArray(location);
    gl.vertexAttribPointer(location, size, gl.FLOAT, false, stride, offset);
    offset += 4 * size;
  });
  gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, gl.createBuffer());
  gl.bufferData(gl.ELEMENT_ARRAY_BUFFER, new Uint16Array(indices), gl.STATIC_DRAW);
  return { array, count: indices.length };
}

export class Scene3d {
  /** `geoms`: type, size and colour of each, as MuJoCo has them. */
  constructor(canvas, geoms) {
    this.canvas = canvas;
    this.camera = new Camera();
    this.geoms = geoms;
    this.interval = 1 / 60;
    this.start();
    canvas.addEventListener("webglcontextlost", (event) => event.preventDefault());
    canvas.addEventListener("webglcontextrestored", () => this.start());
  }

  start() {
    // Not transparent: blended shadows would let the page's white through.
    const options = { alpha: false, antialias: true, stencil: true, powerPreference: "high-performance" };
    const gl = this.canvas.getContext("webgl2", options);
    if (!gl) throw new Error("This browser has no WebGL 2, which the 3D picture needs. Everything else works.");
    this.gl = gl;
    this.body = compile(gl, BODY_VERTEX, BODY_FRAGMENT);
    this.floor = compile(gl, FLOOR_VERTEX, FLOOR_FRAGMENT);
    this.sky = compile(gl, SKY_VERTEX, SKY_FRAGMENT);
    [this.fine, this.coarse] = [true, false].map((isFine) => {
      const named = Object.entries(meshes(isFine)).map(([name, mesh]) => [name, upload(gl, mesh, [3, 3, 1])]);
      return Object.fromEntries(named);
    });
    const corners = { vertices: [-1, -1, 1, -1, 1, 1, -1, 1], indices: [0, 1, 2, 0, 2, 3] };
    this.square = upload(gl, corners, [2]);
    this.drawn = this.geoms.map((geom, i) => this.prepare(geom, i)).filter(Boolean);
  }

  prepare(geom, index) {
    const kind = GEOMS[geom.type];
    if (!kind || geom.rgba[3] === 0) return null;
    return { index, mesh: kind.mesh, scale: kind.scale(geom.size), half: kind.half(geom.size), colour: geom.rgba.slice(0, 3) };
  }

  /** Gives the graphics memory back: browsers allow a page only a few such canvases. */
  release() {
    this.gl?.getExtension("WEBGL_lose_context")?.loseContext();
  }

  /** Notes whether this machine is too slow for the full picture: over some three seconds, and for good. */
  measure(seconds) {
    this.interval += 0.02 * (seconds - this.interval);
    this.isSlow ||= this.interval > SLOW_SECONDS;
  }

  resize() {
    const ratio = Math.min(window.devicePixelRatio || 1, 2) * (this.isSlow ? SLOW_SCALE : 1);
    const [width, height] = [this.canvas.clientWidth, this.canvas.clientHeight].map((x) => Math.max(1, Math.round(x * ratio)));
    if (this.canvas.width !== width || this.canvas.height !== height) {
      this.canvas.width = width;
      this.canvas.height = height;
    }
  }

  /** Draws one picture. `pose`: the robot's centre of mass (3 numbers), then place and quaternion of each geom (7). */
  draw(pose, seconds, theme) {
    const gl = this.gl;
    if (gl.isContextLost()) return;
    this.measure(seconds);
    this.resize();
    this.camera.follow(pose.subarray(0, 3), seconds);
    const { eye, matrix } = this.camera.look(this.canvas.width / this.canvas.height);
    const colours = THEMES[theme];
    gl.viewport(0, 0, this.canvas.width, this.canvas.height);
    gl.clear(gl.DEPTH_BUFFER_BIT | gl.STENCIL_BUFFER_BIT);
    gl.disable(gl.DEPTH_TEST);
    this.drawSky(colours);
    this.drawFloor(matrix, colours);
    gl.useProgram(this.body.program);
    gl.uniformMatrix4fv(this.body.at.camera, false, matrix);
    gl.uniform3fv(this.body.at.eye, eye);
    gl.uniform3fv(this.body.at.sky, colours.sky);
    gl.uniform3fv(this.body.at.ground, colours.ground);
    const [r, g, b, alpha] = colours.shadow;
    gl.uniform4f(this.body.at.shadow, r, g, b, this.isSlow ? 3 * alpha : alpha);
    this.drawShadow(pose);
    gl.enable(gl.DEPTH_TEST);
    gl.uniform1f(this.body.at.flatten, 0);
    gl.uniform3fv(this.body.at.light, unit(LIGHT));
    this.drawBodies(pose, this.fine);
  }

  drawSky(colours) {
    const gl = this.gl;
    gl.useProgram(this.sky.program);
    gl.uniform3fv(this.sky.at.haze, colours.haze);
    gl.uniform3fv(this.sky.at.zenith, colours.zenith);
    gl.uniform1f(this.sky.at.horizon, this.camera.horizon);
    this.drawMesh(this.square);
  }

  drawFloor(matrix, colours) {
    const gl = this.gl;
    const { program, at } = this.floor;
    gl.useProgram(program);
    gl.uniformMatrix4fv(at.camera, false, matrix);
    gl.uniform3fv(at.centre, this.camera.target);
    gl.uniform1f(at.metres, FLOOR_METRES);
    gl.uniform1f(at.range, Math.min(FLOOR_METRES, 5 * this.camera.distance));
    for (const name of ["tile", "otherTile", "line", "haze"]) gl.uniform3fv(at[name], colours[name]);
    this.drawMesh(this.square);
  }

  drawShadow(pose) {
    const gl = this.gl;
    gl.uniform1f(this.body.at.flatten, 1);
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.SRC_ALPHA, gl.ONE_MINUS_SRC_ALPHA);
    // Parts that overlap must not darken twice: each light marks the pixels it has darkened.
    gl.enable(gl.STENCIL_TEST);
    gl.stencilOp(gl.KEEP, gl.KEEP, gl.REPLACE);
    SHADOW_LIGHTS.slice(0, this.isSlow ? 1 : 4).forEach(([x, y], i) => {
      gl.stencilFunc(gl.NOTEQUAL, i + 1, 0xff);
      gl.uniform3fv(this.body.at.light, unit([LIGHT[0] + x, LIGHT[1] + y, LIGHT[2]]));
      this.drawBodies(pose, this.coarse);
    });
    gl.disable(gl.STENCIL_TEST);
    gl.disable(gl.BLEND);
  }

  drawBodies(pose, shapes) {
    const { gl } = this;
    const { at } = this.body;
    for (const { index, mesh, scale, half, colour } of this.drawn) {
      const p = 3 + 7 * index;
      gl.uniform3f(at.place, pose[p], pose[p + 1], pose[p + 2]);
      gl.uniform4f(at.turn, pose[p + 3], pose[p + 4], pose[p + 5], pose[p + 6]);
      gl.uniform3fv(at.scale, scale);
      gl.uniform1f(at.halfLength, half);
      gl.uniform3fv(at.colour, colour);
      this.drawMesh(shapes[mesh]);
    }
  }

  drawMesh({ array, count }) {
    this.gl.bindVertexArray(array);
    this.gl.drawElements(this.gl.TRIANGLES, count, this.gl.UNSIGNED_SHORT, 0);
  }
}
