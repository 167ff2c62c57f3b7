/** A text's label, labels or value, and the words that decide. */

import { make, put } from "./dom.js";
import { bars, button, examples, field, setField, wordsOf } from "./parts.js";

const MOST_WORDS = 80;

/** Return a text's words, each with the text as it is without it. */
export function withoutEach(text) {
  const parts = wordsOf(text);
  return parts.map((part, place) => ({
    part, without: part.trim() === "" ? null : parts.toSpliced(place, 1).join(""),
  }));
}

/** Return what an answer of any of the three kinds gives to what is explained: a label, or the value. */
const scoreOf = (result, label) => (label === null ? result.value : result.probabilities[label]);

export class Classify {
  static id = "classify";
  static verbs = ["classify", "multilabel", "regress"];

  constructor(room) {
    const { t, state } = room;
    this.room = room;
    this.state = state;
    const tries = room.tries(room.pairs ? "pairs" : "classify");
    const [one, other] = room.pairs ? tries[0] : [tries[0], ""];
    state.text ??= one;
    state.second ??= state.touched ? "" : other;
    this.result = null;
    this.ask = room.asks((signal) => this.question(signal), (asked) => this.answered(asked));
    const first = field(t(room.pairs ? "first" : "text"), state.text, (value) => this.write({ text: value }));
    const second = room.secondField(state.second, (value) => this.write({ second: value }));
    const tried = examples(t("examples"), tries, (picked) => {
      const [text, another = ""] = room.pairs ? picked : [picked];
      setField(first, text);
      if (second !== null) setField(second, another);
      this.write({ text, second: another }, 0);
    });
    this.shown = make("div.results");
    this.words = make("div.results");
    const columns = make("div.columns", {}, make("div", {}, first, second, tried), this.shown);
    this.element = make("div", {}, columns, this.words);
    this.ask(0);
  }

  write(change, pause = 250) {
    Object.assign(this.state, change);
    put(this.words);
    this.ask(pause);
  }

  question(signal) {
    const input = this.room.input(this.state.text, this.state.second);
    return input && this.room.ask(`v1/${this.room.verb}`, { texts: [input] }, signal);
  }

  answered(asked) {
    this.result = asked && asked.answer.results[0];
    if (asked === null) put(this.shown);
    else if (this.room.verb === "regress") this.drawValue();
    else this.drawLabels();
  }

  drawValue() {
    const { t, numbers } = this.room;
    put(this.shown, make("h2", {}, t("classify.value")), make("p.large", {}, numbers.plain(this.result.value)),
      button(t("classify.why"), () => this.explain(null)));
  }

  drawLabels() {
    const { t, numbers } = this.room, { probabilities, label, labels } = this.result;
    const chosen = labels ?? [label];
    const sorted = Object.entries(probabilities).sort((a, b) => b[1] - a[1]);
    put(this.shown, make("h2", {}, t(labels ? "classify.labels" : "classify.label")),
      make("p.large", {}, chosen.length === 0 ? t("classify.none") : chosen.flatMap((name, at) => [at ? t("comma") : null, make("bdi", {}, name)])),
      bars(sorted.map(([name, share]) => ({
        label: name, share, value: numbers.percent(share), marked: chosen.includes(name), pick: () => this.explain(name),
      })), t("classify.probabilities")),
      make("p.hint", {}, t("classify.pick")),
      button(t("classify.why"), () => this.explain(chosen[0] ?? sorted[0][0])));
  }

  /** Ask again without each word, and show how much that takes from a label, or from the value. */
  async explain(label) {
    const { t } = this.room, result = this.result, parts = withoutEach(this.state.text);
    const asked = parts.filter(({ without }) => without !== null && without.trim() !== "");
    if (asked.length < 1 || asked.length > MOST_WORDS) {
      put(this.words, make("p.hint", {}, t(asked.length < 1 ? "classify.few" : "classify.many", { most: MOST_WORDS })));
      return;
    }
    const texts = asked.map(({ without }) => this.room.input(without, this.state.second));
    const { answer } = await this.room.once(`v1/${this.room.verb}`, { texts }) ?? {};
    if (answer === undefined || result !== this.result) return;
    const whole = scoreOf(result, label);
    const takes = new Map(asked.map((part, at) => [part, whole - scoreOf(answer.results[at], label)]));
    this.drawWords(label, parts, takes);
  }

  drawWords(label, parts, takes) {
    const { t, numbers } = this.room, most = Math.max(...[...takes.values()].map(Math.abs), 1e-9);
    const shown = label === null ? (take) => (take < 0 ? "" : "+") + numbers.plain(take) : numbers.signed;
    const words = parts.map((part) => {
      const take = takes.get(part);
      if (take === undefined) return document.createTextNode(part.part);
      const word = make("span.weighed", { title: shown(take) }, make("bdi", {}, part.part),
        Math.abs(take) > most / 4 ? make("small", {}, shown(take)) : null);
      const color = take > 0 ? "63 127 209" : "223 132 32";
      word.style.backgroundColor = `rgb(${color} / ${0.6 * Math.abs(take) / most})`;
      return word;
    });
    const name = label ?? t("classify.value");
    put(this.words, make("h2", {}, t("classify.words", { label: name })), make("p.reading", { dir: "auto" }, words),
      make("p.hint", {}, make("span.key.for", {}, t("classify.for")), make("span.key.against", {}, t("classify.against")),
        t("classify.how")));
  }
}
