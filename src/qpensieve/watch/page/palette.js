// One colour for each objective, the same in the dial, the front and the bars; a preference has the mixture of its objectives.

const COLOURS = {
  light: ["#2563eb", "#dc3f6a", "#0b8f6a", "#b45f06", "#7c3aed", "#0e7490", "#5b6472", "#a21caf"],
  dark: ["#6ea0ff", "#ff7d9c", "#3ecf9f", "#f2a541", "#b08cff", "#4cc3dd", "#a5afbf", "#e879f9"],
};
const darkness = window.matchMedia("(prefers-color-scheme: dark)");
const listeners = [];

export const theme = () => (darkness.matches ? "dark" : "light");
const COUNT = COLOURS.light.length;
const colourOf = (i) => COLOURS[theme()][i % COUNT];
/** The class of an objective: what has it finds its colour in `--colour`. */
export const classOf = (i) => `objective-${i % COUNT}`;

const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

/** Colour of a preference: its objectives' colours, mixed as light (squares of the values). */
export function channelsOf(lam) {
  const sums = [0, 0, 0];
  lam.forEach((weight, i) => channels(colourOf(i)).forEach((value, c) => (sums[c] += weight * value * value)));
  return sums.map((sum) => Math.round(Math.sqrt(sum)));
}

export const colourAt = (lam) => `rgb(${channelsOf(lam).join(" ")})`;

export function onTheme(listener) {
  listeners.push(listener);
}

function announce() {
  COLOURS.light.forEach((_, i) => document.documentElement.style.setProperty(`--objective-${i}`, colourOf(i)));
}

darkness.addEventListener("change", () => {
  announce();
  for (const listener of listeners) listener();
});
announce();
