/** Texts in the order of how well they answer a query. */

import { make, put } from "./dom.js";
import { bars, field, linesOf } from "./parts.js";

export class Rerank {
  static id = "rerank";
  static verbs = ["rerank"];
  static fitness = (model) => Number(model.head === "embedding");

  constructor(room) {
    const { t, state } = room;
    this.room = room;
    state.query ??= room.tries("rerank")[0];
    state.lines ??= room.tries("rerank")[1];
    this.shown = make("div.results");
    this.ask = room.asks((signal) => {
      const texts = linesOf(state.lines);
      if (state.query.trim() === "" || texts.length === 0) return null;
      return room.ask("v1/rerank", { query: state.query, texts }, signal);
    }, (asked) => this.answered(asked));
    const write = (name) => (value) => {
      state[name] = value;
      this.ask();
    };
    this.element = make("div.columns.even", {}, make("div", {},
      field(t("rerank.query"), state.query, write("query"), { rows: 1 }),
      field(t("rerank.lines"), state.lines, write("lines"), { rows: 8 })), this.shown);
    this.ask(0);
  }

  answered(asked) {
    if (asked === null) return put(this.shown);
    const { t, numbers } = this.room, { texts } = asked.body, { results } = asked.answer;
    const scores = results.map(({ score }) => score), low = Math.min(0, ...scores), high = Math.max(1, ...scores);
    put(this.shown, make("h2", {}, t("rerank.best")), bars(results.map(({ index, score }, at) => ({
      label: texts[index], share: (score - low) / (high - low), value: numbers.plain(score), marked: at === 0, pick: null,
    })), t("rerank.best")));
  }
}
