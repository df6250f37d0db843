// Unit meshes of the shapes that MuJoCo models are made of. A vertex is position (3), normal (3) and cap (1): a capsule is a
// sphere whose halves are moved apart along z by `cap` times its half length, so one mesh serves every capsule and sphere.

function ball(around, rings) {
  const vertices = [];
  const indices = [];
  // The equator is there twice: once for each half, so that a capsule gets its straight part between them.
  for (let ring = 0; ring <= rings + 1; ring++) {
    const upper = ring > rings / 2;
    const polar = Math.PI * ((upper ? ring - 1 : ring) / rings);
    const [z, radius] = [-Math.cos(polar), Math.sin(polar)];
    for (let i = 0; i <= around; i++) {
      const angle = (2 * Math.PI * i) / around;
      const [x, y] = [radius * Math.cos(angle), radius * Math.sin(angle)];
      vertices.push(x, y, z, x, y, z, upper ? 1 : -1);
    }
  }
  grid(indices, rings + 1, around);
  return { vertices, indices };
}

function grid(indices, rings, around) {
  for (let ring = 0; ring < rings; ring++) {
    for (let i = 0; i < around; i++) {
      const a = ring * (around + 1) + i;
      const b = a + around + 1;
      indices.push(a, a + 1, b + 1, a, b + 1, b);
    }
  }
}

function cylinder(around) {
  const vertices = [];
  const indices = [];
  for (const z of [-1, 1]) {
    for (let i = 0; i <= around; i++) {
      const angle = (2 * Math.PI * i) / around;
      vertices.push(Math.cos(angle), Math.sin(angle), z, Math.cos(angle), Math.sin(angle), 0, 0);
    }
  }
  grid(indices, 1, around);
  for (const z of [-1, 1]) {
    const centre = vertices.length / 7;
    vertices.push(0, 0, z, 0, 0, z, 0);
    for (let i = 0; i <= around; i++) {
      const angle = (2 * Math.PI * i) / around;
      vertices.push(Math.cos(angle), Math.sin(angle), z, 0, 0, z, 0);
    }
    for (let i = 1; i <= around; i++) {
      indices.push(centre, centre + (z > 0 ? i : i + 1), centre + (z > 0 ? i + 1 : i));
    }
  }
  return { vertices, indices };
}

function box() {
  const vertices = [];
  const indices = [];
  for (let axis = 0; axis < 3; axis++) {
    for (const side of [-1, 1]) {
      const first = vertices.length / 7;
      for (const [u, v] of [[-1, -1], [1, -1], [1, 1], [-1, 1]]) {
        const position = [0, 0, 0];
        const normal = [0, 0, 0];
        position[axis] = normal[axis] = side;
        position[(axis + 1) % 3] = u;
        position[(axis + 2) % 3] = v;
        vertices.push(...position, ...normal, 0);
      }
      const order = side > 0 ? [0, 1, 2, 0, 2, 3] : [0, 2, 1, 0, 3, 2];
      indices.push(...order.map((corner) => first + corner));
    }
  }
  return { vertices, indices };
}

/** The meshes; a shadow, which is flat and dark, does with a quarter of the corners. */
export const meshes = (isFine) => {
  const [around, rings] = isFine ? [24, 12] : [12, 6];
  return { ball: ball(around, rings), cylinder: cylinder(around), box: box() };
};

/** Mesh of each type of geom, and how its size becomes a scale of the mesh and a half length. */
export const GEOMS = {
  sphere: { mesh: "ball", scale: ([r]) => [r, r, r], half: () => 0 },
  capsule: { mesh: "ball", scale: ([r]) => [r, r, r], half: (size) => size[1] },
  ellipsoid: { mesh: "ball", scale: (size) => size, half: () => 0 },
  cylinder: { mesh: "cylinder", scale: ([r, half]) => [r, r, half], half: () => 0 },
  box: { mesh: "box", scale: (size) => size, half: () => 0 },
};
