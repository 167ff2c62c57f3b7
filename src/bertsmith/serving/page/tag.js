/** Entities as coloured spans. */

import { make, put } from "./dom.js";
import { cutAt, examples, field, setField } from "./parts.js";

const COLORS = 8;

/** Return the kinds of entities that a model's tags name, in their order. */
export const kindsOf = (labels) => [...new Set(labels.map((label) => label.replace(/^[A-Z]-/, "")).filter((kind) => kind !== "O"))];

export class Tag {
  static id = "tag";
  static verbs = ["tag"];

  constructor(room) {
    const { t, state } = room;
    this.room = room;
    this.state = state;
    state.text ??= room.tries("tag")[0];
    this.kinds = kindsOf(room.model.labels ?? []);
    this.shown = make("div.results");
    this.ask = room.asks((signal) => (
      state.text.trim() === "" ? null : room.ask("v1/tag", { texts: [state.text] }, signal)
    ), (asked) => this.answered(asked));
    const text = field(t("text"), state.text, (value) => this.write(value));
    const tried = examples(t("examples"), room.tries("tag"), (picked) => {
      setField(text, picked);
      this.write(picked, 0);
    });
    this.element = make("div", {}, text, tried, this.shown);
    this.ask(0);
  }

  write(text, pause = 250) {
    this.state.text = text;
    this.asked = text;
    this.ask(pause);
  }

  color(kind) {
    const place = this.kinds.indexOf(kind);
    return (place < 0 ? this.kinds.length : place) % COLORS;
  }

  answered(asked) {
    if (asked === null) return put(this.shown);
    const { t, numbers } = this.room, { entities, words, tags } = asked.answer.results[0];
    const parts = cutAt(asked.body.texts[0], entities).map(({ text, span }) => (span === null
      ? document.createTextNode(text)
      : make("mark.entity", { "data-color": this.color(span.label), title: numbers.percent(span.probability) },
        make("bdi", {}, text), make("small", {}, span.label))));
    const counts = new Map(entities.map(({ label }) => [label, entities.filter((one) => one.label === label).length]));
    const legend = [...counts].map(([label, count]) => make("li", { "data-color": this.color(label) }, `${label} `, make("b", {}, numbers.count(count))));
    const rows = entities.map(({ label, text, probability }) => make("tr", {},
      make("td", {}, make("bdi", {}, text)), make("td", {}, label), make("td.number", {}, numbers.percent(probability))));
    const all = words.map((word, at) => make("span.tagged", {}, make("bdi", {}, word), make("small", {}, tags[at])));
    put(this.shown,
      make("p.reading.entities", { dir: "auto" }, parts),
      entities.length === 0 ? make("p.hint", {}, t("tag.none")) : make("ul.legend", {}, legend),
      entities.length === 0 ? null : make("div.wide", {}, make("table", {}, make("thead", {}, make("tr", {},
        ["tag.text", "tag.kind", "tag.sure"].map((key) => make("th", { scope: "col" }, t(key))))), make("tbody", {}, rows))),
      make("details", {}, make("summary", {}, t("tag.words")), make("p.tags", { dir: "auto" }, all)));
  }
}
