// The card of a policy that comes with qpensieve: its utility, and how it was trained.

import { html, number, steps } from "./dom.js";

const COMMIT = 7;

export class Card {
  constructor(box) {
    this.box = box;
  }

  /** Hides the card of anything but a policy that comes with qpensieve. */
  show({ card, name }) {
    this.box.parentElement.hidden = !card;
    if (!card || this.name === name) return;
    this.name = name;
    const row = (term, ...content) => html("div", {}, html("dt", {}, term), html("dd", {}, ...content));
    const reached = ["asked", "calibrated"].filter((kind) => card[kind]).map((kind) => {
      const { ut, low, high } = card[kind];
      const range = low === high ? "" : ` (${number(low)} to ${number(high)})`;
      return row(`Utility, ${kind}`, html("strong", {}, number(ut)), range);
    });
    const seeds = card.seeds.length > 1 ? `seed ${card.seed} of ${card.seeds.length}` : `seed ${card.seed}`;
    this.box.replaceChildren(
      ...reached,
      row("Trained by", html("code", {}, card.command)),
      row("Length", `${steps(card.steps)} steps, ${seeds}`),
      row("Made with", `commit ${card.commit.slice(0, COMMIT)}, ${card.machine}`),
      row("Licence", card.licence),
    );
  }
}
