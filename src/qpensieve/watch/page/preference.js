// Points of the simplex: d numbers, none negative, that sum to 1.

export const equal = (d) => Array(d).fill(1 / d);
export const corner = (d, i) => Array.from({ length: d }, (_, j) => (j === i ? 1 : 0));

/** Sets one share; the others keep their proportions (those of `base`) and take what is left. */
export function withShare(base, index, value) {
  const others = base.reduce((sum, x, i) => (i === index ? sum : sum + x), 0);
  const rest = 1 - value;
  return base.map((x, i) => {
    if (i === index) return value;
    return others > 1e-9 ? (x / others) * rest : rest / (base.length - 1);
  });
}

/** The nearest point of the simplex for any numbers: negative ones become 0, then the sum becomes 1. */
export function normalised(numbers) {
  const positive = numbers.map((x) => Math.max(0, x));
  const sum = positive.reduce((a, b) => a + b, 0);
  return sum > 1e-9 ? positive.map((x) => x / sum) : equal(numbers.length);
}

export const mixOf = (a, b, share) => a.map((x, i) => x + share * (b[i] - x));

const distance = (a, b) => Math.hypot(...a.map((x, i) => x - b[i]));

export function nearest(points, point) {
  let best = -1;
  let least = Infinity;
  points.forEach((candidate, i) => {
    const d = distance(candidate, point);
    if (d < least) [best, least] = [i, d];
  });
  return best;
}

/** In words, for those who cannot see the dial. */
export const spoken = (objectives, lam) => objectives.map((name, i) => `${name} ${lam[i].toFixed(2)}`).join(", ");
