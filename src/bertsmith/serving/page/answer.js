/** The answer to a question, marked in its passage. */

import { make, put } from "./dom.js";
import { bars, cutAt, examples, field, setField } from "./parts.js";

const SHOWN = 6;

/** Return the spans, best first, that lie over none before them, in the order of the text. */
export function apart(candidates) {
  const kept = [];
  for (const one of candidates) {
    const free = kept.every((other) => one.end <= other.start || one.start >= other.end);
    if (one.end > one.start && free) kept.push(one);
  }
  return kept.sort((a, b) => a.start - b.start);
}

export class Answer {
  static id = "answer";
  static verbs = ["answer"];

  constructor(room) {
    const { t, state } = room;
    this.room = room;
    this.state = state;
    const [passage, ...questions] = room.tries("answer");
    state.passage ??= passage;
    state.question ??= questions[0];
    this.shown = make("div.results");
    this.ask = room.asks((signal) => {
      const { passage: read, question } = state;
      if (read.trim() === "" || question.trim() === "") return null;
      return room.ask("v1/answer", { inputs: [{ question, passage: read }] }, signal);
    }, (asked) => this.answered(asked));
    const ask = field(t("answer.question"), state.question, (value) => this.write({ question: value }), { rows: 1 });
    const read = field(t("answer.passage"), state.passage, (value) => this.write({ passage: value }), { rows: 8 });
    const tried = examples(t("examples"), questions, (question) => {
      setField(ask, question);
      setField(read, passage);
      this.write({ question, passage }, 0);
    });
    this.element = make("div.columns.even", {}, make("div", {}, ask, tried, read), this.shown);
    this.ask(0);
  }

  write(change, pause = 250) {
    Object.assign(this.state, change);
    this.ask(pause);
  }

  answered(asked) {
    if (asked === null) return put(this.shown);
    const { t, numbers } = this.room, result = asked.answer.results[0], { passage } = asked.body.inputs[0];
    const name = (text) => (text === "" ? t("answer.no") : text);
    const candidates = result.candidates.slice(0, SHOWN), marked = apart(candidates);
    const parts = cutAt(passage, marked).map(({ text, span }) => (span === null ? document.createTextNode(text)
      : make("mark.answer", { "data-best": span.start === result.start && span.end === result.end,
        title: numbers.percent(span.probability) }, text)));
    put(this.shown,
      make("h2", {}, t("answer.answer")),
      make("p.large", { dir: "auto" }, name(result.text)),
      make("p.reading", { dir: "auto" }, parts),
      make("h2", {}, t("answer.candidates")),
      bars(candidates.map(({ text, probability }, at) => ({
        label: name(text), share: probability, value: numbers.percent(probability), marked: at === 0, pick: null,
      })), t("answer.candidates")),
      make("p.hint", {}, t(result.text === "" ? "answer.null.none" : "answer.null.some", { odds: numbers.plain(result.null_odds) })));
  }
}
