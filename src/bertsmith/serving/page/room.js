/** What surrounds a view: its model, its questions to the server, and what is said about each of them. */

import { copy, make, put } from "./dom.js";
import { examplesOf, PROBES, readLanguage } from "./examples.js";
import { button, field, numbersOf } from "./parts.js";
import { asCurl, ask, asking, hasToken, useToken } from "./server.js";

const MOST_CHARACTERS = 4000;

/** What a link may hold besides the model: the texts of views. */
export const LINKED = ["text", "second", "question", "passage", "context", "choices", "lines", "query"];

const probed = new Map();

/** Return a form that asks for the server's token. */
export function tokenForm(t, done) {
  const input = make("input", { type: "password", autocomplete: "current-password", required: true });
  return make("form.token", {
    onsubmit: (event) => {
      event.preventDefault();
      useToken(input.value.trim());
      done();
    },
  }, make("p", { role: "alert" }, t(hasToken() ? "token.wrong" : "token")),
  make("label.field", {}, make("span.label", {}, t("token.field")), input), make("button", { type: "submit" }, t("token.use")));
}

export class Room {
  /**
   * @param {object} given the view's class, the model of /v1/models, the verb, the view's state (kept while the window
   *   is open), the page's language, its words, and what to do when the server asks for a token.
   */
  constructor({ view, model, verb, state, language, t, signIn }) {
    Object.assign(this, { view, model, verb, state, language, t, signIn });
    this.numbers = numbersOf(language);
    this.pairs = model.pairs;
    this.vocab = model.architecture.vocab_size;
    this.place = make("div.view");
    this.status = make("p.status", { role: "status" });
    this.link = button(t("link"), () => this.copyLink());
    this.proof = make("details.proof", { hidden: true, ontoggle: () => this.prove() }, make("summary", {}, t("request")), make("div"));
    this.element = make("div", {}, this.place, make("footer", {}, make("div.last", {}, this.status, this.link), this.proof));
    for (const event of ["input", "click"]) this.place.addEventListener(event, () => this.touched());
  }

  /** Note that the texts are the user's now, and no longer a link's. */
  touched() {
    this.state.touched = true;
    if (location.hash.includes("?")) history.replaceState(null, "", `#${this.view.id}`);
  }

  /** Build the view, with texts in a language that the model reads. */
  async begin() {
    try {
      this.probed = await this.probe();
    } catch {
      this.probed = [[], []];  // the view's own question will say what is wrong
    }
    if (!this.element.isConnected) return;
    this.shown = new this.view(this);
    put(this.place, this.shown.element);
  }

  async probe() {
    if (!probed.has(this.model.id)) {
      const { answer } = await this.ask("v1/tokenize", { texts: PROBES });
      probed.set(this.model.id, answer.results.map(({ tokens }) => tokens));
    }
    return probed.get(this.model.id);
  }

  /** Say whether the vocabulary is of bytes, as RoBERTa's: pieces that begin a word hold the blank before it. */
  get ofBytes() {
    return this.probed[0][0] === "<s>";
  }

  /** Return what the model is asked about: a pair, where it takes one and there is a second text; null: not yet. */
  input(text, second) {
    const single = second.trim() === "";
    if (text.trim() === "" || (this.pairs && single)) return null;
    return this.pairs === false || single ? text : [text, second];
  }

  /** Return a field for a second text, or none where the model takes no pairs. */
  secondField(value, changed) {
    if (this.pairs === false) return null;
    return field(this.t(this.pairs ? "second" : "second.maybe"), value, changed, { rows: 1 });
  }

  /** Return a view's texts to begin with. */
  tries(name) {
    return examplesOf(readLanguage(this.language, this.probed), name);
  }

  /** Ask this room's model. */
  ask(path, body, signal) {
    return ask(path, { model: this.model.id, ...body }, signal);
  }

  /** Return a function that asks when something has changed; see ``asking``. */
  asks(question, show) {
    return asking(question, (asked) => {
      show(asked);
      this.report(asked && (Array.isArray(asked) ? asked[0] : asked));
    }, (error) => this.failed(error), () => {
      this.element.setAttribute("aria-busy", "true");
    });
  }

  /** Ask once; null, where it failed, which is said. */
  async once(path, body) {
    this.element.setAttribute("aria-busy", "true");
    try {
      const asked = await this.ask(path, body);
      this.report(asked);
      return asked;
    } catch (error) {
      this.failed(error);
      return null;
    }
  }

  /** Put a link to this view with its texts into the address bar, and on the clipboard where that may be. */
  async copyLink() {
    const shared = Object.entries({ ...this.state, ...this.shown.shared?.() }).filter(([name]) => LINKED.includes(name));
    const link = `#${this.view.id}?${new URLSearchParams([["model", this.model.id], ...shared])}`;
    history.replaceState(null, "", link);
    this.link.textContent = this.t(await copy(location.href) ? "link.copied" : "link.above");
  }

  report(asked) {
    this.element.removeAttribute("aria-busy");
    this.last = asked;
    this.proof.hidden = asked === null;
    if (asked === null) return put(this.status);
    const { t, numbers } = this, { answer, seconds } = asked;
    const read = t("read", { pieces: numbers.count(answer.usage.pieces), milliseconds: numbers.count(Math.max(1, Math.round(1000 * seconds))) });
    const cut = [answer.truncated, answer.results?.map(({ truncated }) => truncated)].flat().some(Boolean);
    put(this.status, read, cut ? make("span.warning", {}, t("cut", { length: numbers.count(this.model.seq_len) })) : null);
    this.prove();
  }

  failed(error) {
    this.element.removeAttribute("aria-busy");
    if (error.status === 401) return this.signIn();
    if (!("status" in error)) throw error;
    put(this.status, make("span.warning", {}, error.status === 0 ? this.t("unreachable") : error.message));
  }

  /** Show the last request as a command, and its answer, where that is open. */
  prove() {
    if (!this.proof.open || !this.last) return;
    const { t, last } = this, command = asCurl(last), answer = JSON.stringify(last.answer, null, 1);
    const shown = answer.length > MOST_CHARACTERS ? `${answer.slice(0, MOST_CHARACTERS)} …` : answer;
    const copying = button(t("copy"), async () => {
      if (await copy(command)) copying.textContent = t("copied");
    });
    put(this.proof.lastElementChild, make("pre", {}, command), copying, make("h2", {}, t("answer")), make("pre", {}, shown));
  }
}
