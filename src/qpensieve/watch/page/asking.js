// Choice of the preference that the policy gets: the one of the dial, or the one that the calibration gives for it.

import { expectedAt } from "./evaluations.js";
import { html, number, set, share, write } from "./dom.js";
import { nearest } from "./preference.js";

/** The preference that the calibration gives for `lam`; null if the side's policies have no calibration. */
export function calibratedOf({ run, state }, lam) {
  const known = run.calibration;
  if (known?.step !== state?.at) return null;
  const near = nearest(known.preferences, lam);
  const asked = known.asks[run.seeds.indexOf(state.seed)][near];
  return asked === near ? lam : known.preferences[asked];
}

/** The preference that a side's policy gets now. */
export const askedOf = (side) => (side.state?.calibrated && calibratedOf(side, side.lam)) || side.lam;

const utility = (lam, point) => lam.reduce((sum, weight, i) => sum + weight * point[i], 0);

export class Asking {
  /** `choose(calibrated)` is called when a person chooses a row. */
  constructor(box, choose) {
    this.box = box;
    this.rows = [false, true].map((calibrated) => {
      const input = html("input", { type: "radio", name: "asking", value: String(calibrated) });
      const [lam, worth] = [html("span", { class: "asking-lam" }), html("span", { class: "asking-worth" })];
      input.addEventListener("change", () => choose(calibrated));
      const row = html("label", { class: "asking-row" }, input, html("span", { class: "name" }, calibrated ? "Calibrated" : "Asked"), lam, worth);
      return { input, lam, worth, row };
    });
    box.append(html("legend", {}, "Preference that the policy gets"), ...this.rows.map(({ row }) => row));
  }

  /** Hides the choice if there is no calibration. */
  show(side) {
    const better = calibratedOf(side, side.lam);
    this.box.hidden = !better;
    if (!better) return;
    this.rows.forEach(({ input, lam, worth, row }, i) => {
      const asked = i ? better : side.lam;
      const { expected } = expectedAt(side.table, asked);
      input.checked = Boolean(side.state.calibrated) === Boolean(i);
      set(row, { class: input.checked ? "asking-row chosen" : "asking-row" });
      write(lam, i && asked === side.lam ? "the same" : asked.map(share).join(" · "));
      write(worth, expected ? `utility ${number(utility(side.lam, expected))}` : "");
    });
  }
}
