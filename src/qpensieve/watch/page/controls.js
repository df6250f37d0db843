// Buttons, choices and keys. They only ask; what is shown comes back from the server as its state.

import { byId, html, set, write } from "./dom.js";

const NOTICE_MS = 9000;

export class Controls {
  /** `ask(message)`: sends to every side; `act`: named actions that the keys share with the page. */
  constructor(ask, act) {
    this.ask = ask;
    this.act = act;
    const click = (id, action) => byId(id).addEventListener("click", action);
    click("pause", () => this.toggle());
    click("step", () => ask({ step: 1 }));
    click("restart", () => ask({ reset: "same" }));
    click("next", () => ask({ reset: true }));
    click("push", () => ask({ push: true }));
    click("equal", act.equal);
    click("sweep", act.sweep);
    click("compare", act.compare);
    click("help", () => byId("keys").showModal());
    click("banner-close", () => this.notice(""));
    byId("speed").addEventListener("change", (event) => ask({ speed: Number(event.target.value) }));
    byId("seed").addEventListener("change", (event) => ask({ seed: Number(event.target.value) }));
    byId("sampled").addEventListener("change", (event) => ask({ sampled: event.target.value === "true" }));
    document.addEventListener("keydown", (event) => this.key(event));
  }

  toggle() {
    this.ask({ paused: !this.paused });
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || byId("keys").open) return;
    const on = event.target;
    // Space presses the button that has the focus; letters choose in a list.
    if (on.closest("select, textarea, input:not([type=range])") || (event.key === " " && on.closest("button, a, [role=button], input"))) return;
    const keys = {
      " ": () => this.toggle(),
      ".": () => this.ask({ step: 1 }),
      r: () => this.ask({ reset: "same" }),
      n: () => this.ask({ reset: true }),
      p: () => byId("push").click(),
      w: this.act.sweep,
      b: this.act.compare,
      c: this.act.calibrate,
      d: () => byId("dial")?.focus(),
      0: this.act.equal,
      "?": () => byId("keys").showModal(),
    };
    const digit = /^[1-9]$/.test(event.key) ? Number(event.key) : 0;
    const action = digit ? () => this.act.corner(digit - 1) : keys[event.key.toLowerCase()];
    if (!action) return;
    event.preventDefault();
    action();
  }

  /** The state of the chosen side. */
  show(state, run) {
    this.paused = state.paused;
    set(byId("pause"), { "aria-pressed": state.paused });
    write(byId("pause-text"), state.paused ? "Go on" : "Pause");
    choose(byId("speed"), state.speed, (value) => `${value}×`);
    choose(byId("sampled"), state.sampled);
    const seeds = byId("seed");
    if (seeds.dataset.seeds !== run.seeds.join()) {
      seeds.dataset.seeds = run.seeds.join();
      seeds.replaceChildren(...run.seeds.map((seed) => html("option", { value: seed }, String(seed))));
    }
    choose(seeds, state.seed);
    byId("push").disabled = !run.scene.can_push;
  }

  status(kind, text) {
    const pill = byId("status");
    pill.dataset.kind = kind;
    write(pill, text);
  }

  /** Says something in words above the page; it goes by itself unless it `stays`. */
  notice(text, stays = false) {
    clearTimeout(this.timer);
    write(byId("banner-text"), text);
    byId("banner").hidden = !text;
    if (text && !stays) this.timer = setTimeout(() => this.notice(""), NOTICE_MS);
  }
}

/** Chooses `value` in a list, which gets it as an option if it has none such. */
function choose(select, value, name = String) {
  const text = String(value);
  if (![...select.options].some((option) => option.value === text)) select.append(html("option", { value: text }, name(text)));
  select.value = text;
}
