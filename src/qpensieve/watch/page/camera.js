// A camera that follows a point, turned by the pointer or by keys. Angles in degrees, as MuJoCo has them.

const RAD = Math.PI / 180;
const FIELD_OF_VIEW = 30 * RAD;
const FOLLOW_SECONDS = 0.25;
const NEAR = 0.1;
const FAR = 120;

const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
const unit = (a) => a.map((x) => x / Math.hypot(...a));

export class Camera {
  constructor() {
    this.target = null;
    this.settle({ azimuth: 90, elevation: -14, distance: 6 });
  }

  /** Where it stands at first, and after a reset. */
  settle(home) {
    this.home = home;
    this.reset();
  }

  reset() {
    Object.assign(this, this.home);
  }

  turn(azimuth, elevation) {
    this.azimuth += azimuth;
    this.elevation = Math.min(-3, Math.max(-88, this.elevation + elevation));
  }

  zoom(factor) {
    const home = this.home.distance;
    this.distance = Math.min(home * 4, Math.max(home / 4, this.distance * factor));
  }

  /** Moves towards `point` as a camera on a cart would; jumps when the robot was put somewhere else. */
  follow(point, seconds) {
    if (!this.target || this.target.some((x, i) => Math.abs(point[i] - x) > 3)) {
      this.target = [...point];
      return;
    }
    const share = 1 - Math.exp(-seconds / FOLLOW_SECONDS);
    // Height is followed more slowly: a hop should be seen as a hop.
    point.forEach((x, i) => (this.target[i] += (x - this.target[i]) * (i === 2 ? share / 4 : share)));
  }

  /** Equal for two pictures taken from the same place, to a fraction of a pixel. */
  get key() {
    return [...(this.target ?? []), this.azimuth, this.elevation, this.distance].map((x) => x.toFixed(3)).join();
  }

  /** Height of the horizon in the picture, from -1 below to 1 above. */
  get horizon() {
    return Math.tan(-this.elevation * RAD) / Math.tan(FIELD_OF_VIEW / 2);
  }

  /** Eye and the 4x4 matrix from world to clip space, column by column. */
  look(aspect) {
    const [azimuth, elevation] = [this.azimuth * RAD, this.elevation * RAD];
    const forward = [
      Math.cos(elevation) * Math.cos(azimuth),
      Math.cos(elevation) * Math.sin(azimuth),
      Math.sin(elevation),
    ];
    // A narrow picture shows as much of the floor as a square one.
    const distance = this.distance * Math.max(1, 1.15 / aspect);
    const eye = this.target.map((x, i) => x - distance * forward[i]);
    eye[2] = Math.max(eye[2], 0.05);
    const right = unit(cross(forward, [0, 0, 1]));
    const up = cross(right, forward);
    const y = 1 / Math.tan(FIELD_OF_VIEW / 2);
    const x = y / aspect;
    const [depth, shift] = [(FAR + NEAR) / (FAR - NEAR), (-2 * FAR * NEAR) / (FAR - NEAR)];
    const rows = [
      [...right.map((v) => v * x), -dot(right, eye) * x],
      [...up.map((v) => v * y), -dot(up, eye) * y],
      [...forward.map((v) => v * depth), -dot(forward, eye) * depth + shift],
      [...forward, -dot(forward, eye)],
    ];
    const matrix = new Float32Array(16);
    rows.forEach((row, r) => row.forEach((value, c) => (matrix[4 * c + r] = value)));
    return { eye, matrix };
  }
}
