// The one WebSocket: JSON out, JSON events and binary frames in. It comes back by itself when the server does.

const WAITS = [0.5, 1, 2, 3, 5];
const SEQ_END = 2 ** 24;
const REASONS = {
  1008: "The server closed the connection: too many messages.",
  1009: "The server closed the connection: a message was too long.",
};

async function fetchAbout() {
  let answer;
  try {
    answer = await fetch("about", { cache: "no-store" });
  } catch {
    throw new Error("The server does not answer.");
  }
  if (answer.status === 404) {
    throw new Error("This address is no longer valid. Open the one that the newest `qpensieve watch` printed.");
  }
  if (!answer.ok) throw new Error(`The server answered ${answer.status}: ${(await answer.text()).slice(0, 300)}`);
  return answer.json();
}

export class Connection {
  /** `on`: opened(about), event(object), frame(ArrayBuffer), lost(reason, seconds until the next try). */
  constructor(on) {
    this.on = on;
    this.seq = 0;
    this.tries = 0;
    this.socket = null;
  }

  async open() {
    clearTimeout(this.timer);
    this.closing = false;
    try {
      const about = await fetchAbout();
      if (!this.closing) this.join(about);
    } catch (error) {
      this.again(error.message);
    }
  }

  join(about) {
    const socket = new WebSocket(new URL("live", location.href.replace(/^http/, "ws")));
    socket.binaryType = "arraybuffer";
    socket.onopen = () => {
      this.tries = 0;
      this.on.opened(about);
    };
    socket.onmessage = ({ data }) => {
      if (typeof data === "string") this.on.event(JSON.parse(data));
      else this.on.frame(data);
    };
    socket.onclose = ({ code, reason }) => {
      if (this.socket === socket) this.again(reason || REASONS[code] || "The server is gone.");
    };
    this.socket = socket;
  }

  again(reason) {
    this.socket = null;
    if (this.closing) return;
    const sentence = /[.!?]$/.test(reason) ? reason : `${reason}.`;
    const wait = WAITS[Math.min(this.tries++, WAITS.length - 1)];
    this.on.lost(sentence, wait);
    this.timer = setTimeout(() => this.open(), 1000 * wait);
  }

  /** Sends now; returns the number that frames will echo, or null without a connection. */
  send(message) {
    if (this.socket?.readyState !== WebSocket.OPEN) return null;
    this.seq = (this.seq + 1) % SEQ_END;
    this.socket.send(JSON.stringify({ ...message, seq: this.seq }));
    return this.seq;
  }

  close() {
    this.closing = true;
    clearTimeout(this.timer);
    this.socket?.close();
    this.socket = null;
  }
}
