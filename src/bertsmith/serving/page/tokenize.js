/** What the model reads: pieces and their numbers. */

import { make, put } from "./dom.js";
import { between, examples, field, setField } from "./parts.js";

const UNKNOWN = new Set(["[UNK]", "<unk>"]);

export class Tokenize {
  static id = "tokenize";
  static verbs = ["tokenize"];

  constructor(room) {
    const { t, state } = room;
    this.room = room;
    state.text ??= room.tries("tokenize")[0];
    this.shown = make("div.results");
    this.ask = room.asks((signal) => (
      state.text === "" ? null : room.ask("v1/tokenize", { texts: [state.text] }, signal)
    ), (asked) => this.answered(asked));
    const write = (text, pause = 250) => {
      state.text = text;
      this.ask(pause);
    };
    const text = field(t("text"), state.text, write);
    const tried = examples(t("examples"), room.tries("tokenize"), (picked) => {
      setField(text, picked);
      write(picked, 0);
    });
    this.element = make("div", {}, text, tried, this.shown);
    this.ask(0);
  }

  answered(asked) {
    if (asked === null) return put(this.shown);
    const { t, numbers } = this.room, { ids, tokens, offsets } = asked.answer.results[0];
    const points = Array.from(asked.body.texts[0]);
    const pieces = tokens.map((token, at) => {
      const [start, end] = offsets[at], from = between(points, start, end);
      return make("span.piece", {
        "data-special": start === end, "data-unknown": UNKNOWN.has(token), "data-goes-on": token.startsWith("##"),
        title: start === end ? t("tokenize.special") : t("tokenize.from", { text: from, start, end }),
      }, make("bdi", {}, token), make("small", {}, String(ids[at])));
    });
    const unknown = tokens.filter((token) => UNKNOWN.has(token)).length;
    const characters = points.length, special = offsets.filter(([start, end]) => start === end).length;
    const said = { pieces: numbers.count(ids.length - special), characters: numbers.count(characters),
      each: numbers.plain(characters / Math.max(ids.length - special, 1)) };
    put(this.shown, make("div.pieces", {}, pieces), make("p.hint", {}, t("tokenize.said", said)),
      unknown > 0 ? make("p.warning", {}, t("tokenize.unknown", { count: numbers.count(unknown) })) : null);
  }
}
