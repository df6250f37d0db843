// Making elements, and numbers as people read them.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

export const html = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
export const svg = (name, attributes = {}, ...children) => fill(document.createElementNS(SVG, name), attributes, children);
export const byId = (id) => document.getElementById(id);

/** Sets attributes of an element that is there; only those that changed touch the page. */
export function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    const text = String(value);
    if (element.getAttribute(name) !== text) element.setAttribute(name, text);
  }
}

export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** So many digits after the point, a true minus, and no minus before nothing. */
export function fixed(x, digits) {
  const text = Math.abs(x).toFixed(digits);
  return x < 0 && Number(text) !== 0 ? `−${text}` : text;
}

const THIN = "\u202f";

/** About four figures, thousands apart, a true minus. */
export function number(x) {
  if (!Number.isFinite(x)) return "–";
  const size = Math.abs(x);
  const digits = size >= 100 ? 0 : size >= 10 ? 1 : 2;
  const [whole, part] = fixed(x, digits).split(".");
  return whole.replace(/\B(?=(\d{3})+$)/g, THIN) + (part ? `.${part}` : "");
}

/** The domain without its objectives, which the page names elsewhere. */
export const domainOf = ({ domain }) => domain.split("+")[0];
export const steps = (n) => String(n).replace(/\B(?=(\d{3})+$)/g, THIN);
export const share = (x) => x.toFixed(2);
/** A preference in a few characters: shares in percent. */
export const percents = (lam) => lam.map((x) => Math.round(100 * x)).join(" · ");
