/** How alike texts are, each with each. */

import { arrows, make, put } from "./dom.js";
import { bars, field, linesOf } from "./parts.js";

const MOST_IN_TABLE = 12;

export class Similarity {
  static id = "similarity";
  static verbs = ["similarity"];
  static fitness = (model) => Number(model.head === "embedding");

  constructor(room) {
    const { t, state } = room;
    this.room = room;
    this.state = state;
    state.lines ??= room.tries("similarity");
    state.row ??= 0;
    this.shown = make("div.results");
    this.ask = room.asks((signal) => {
      const texts = linesOf(state.lines);
      return texts.length < 2 ? null : room.ask("v1/similarity", { texts }, signal);
    }, (asked) => this.answered(asked));
    const lines = field(t("similarity.lines"), state.lines, (value) => {
      state.lines = value;
      this.ask();
    }, { rows: 6 });
    this.element = make("div", {}, lines, this.shown);
    this.ask(0);
  }

  answered(asked) {
    if (asked === null) return put(this.shown, make("p.hint", {}, this.room.t("similarity.few")));
    this.texts = asked.body.texts;
    this.values = asked.answer.values;
    this.state.row = Math.min(this.state.row, this.texts.length - 1);
    this.draw();
  }

  draw() {
    const { t, numbers } = this.room, { texts, values } = this, { row } = this.state;
    const others = texts.map((text, at) => ({ text, at, value: values[row][at] })).filter(({ at }) => at !== row);
    const sorted = others.sort((a, b) => b.value - a.value);
    const list = bars(sorted.map(({ text, at, value }) => ({
      label: text, share: value, value: numbers.plain(value), marked: false, pick: () => this.turn(at),
    })), t("similarity.closest"));
    const nearest = make("div", {}, make("h2", {}, t("similarity.closest")), make("p.large", { dir: "auto" }, texts[row]), list,
      make("p.hint", {}, t("similarity.pick")));
    arrows(list);
    const table = texts.length > MOST_IN_TABLE ? make("p.hint", {}, t("similarity.many", { most: MOST_IN_TABLE })) : this.table();
    put(this.shown, make("div.columns.even", {}, nearest, make("div.wide", {}, table)));
  }

  turn(row) {
    this.state.row = row;
    this.draw();
    this.shown.querySelector("button")?.focus();
  }

  table() {
    const { t, numbers } = this.room, { texts, values } = this;
    const cell = (value) => {
      const one = make("td", {}, numbers.plain(value));
      one.style.backgroundColor = `rgb(63 127 209 / ${0.7 * Math.max(value, 0) ** 2})`;
      return one;
    };
    const heads = texts.map((text, at) => make("th", { scope: "col", title: text }, String(at + 1)));
    const rows = texts.map((text, at) => make("tr", { "data-row": at === this.state.row }, make("th", { scope: "row" }, `${at + 1} `, make("bdi", {}, text)),
      values[at].map(cell)));
    return make("table.cosines", {}, make("caption", {}, t("similarity.table")),
      make("thead", {}, make("tr", {}, make("td"), heads)), make("tbody", {}, rows));
  }
}
