/** Which of some choices goes best with a context. */

import { make, put } from "./dom.js";
import { bars, examples, field, setField, linesOf } from "./parts.js";

export class Choose {
  static id = "choose";
  static verbs = ["choose"];

  constructor(room) {
    const { t, state } = room, tries = room.tries("choose");
    this.room = room;
    this.state = state;
    state.context ??= tries[0][0];
    state.choices ??= tries[0].slice(1).join("\n");
    this.shown = make("div.results");
    this.ask = room.asks((signal) => {
      const choices = linesOf(state.choices);
      if (state.context.trim() === "" || choices.length < 2) return null;
      return room.ask("v1/choose", { inputs: [{ context: state.context, choices }] }, signal);
    }, (asked) => this.answered(asked));
    const context = field(t("choose.context"), state.context, (value) => this.write({ context: value }));
    const choices = field(t("choose.choices"), state.choices, (value) => this.write({ choices: value }), { rows: 4 });
    const tried = examples(t("examples"), tries, ([first, ...rest]) => {
      setField(context, first);
      setField(choices, rest.join("\n"));
      this.write({ context: first, choices: rest.join("\n") }, 0);
    });
    this.element = make("div.columns.even", {}, make("div", {}, context, choices, tried), this.shown);
    this.ask(0);
  }

  write(change, pause = 250) {
    Object.assign(this.state, change);
    this.ask(pause);
  }

  answered(asked) {
    const { t, numbers } = this.room;
    if (asked === null) return put(this.shown, make("p.hint", {}, t("choose.few")));
    const result = asked.answer.results[0], { choices } = asked.body.inputs[0];
    put(this.shown, make("h2", {}, t("choose.best")), make("p.large", { dir: "auto" }, result.text),
      bars(choices.map((choice, at) => ({
        label: choice, share: result.probabilities[at], value: numbers.percent(result.probabilities[at]),
        marked: at === result.choice, pick: null,
      })), t("choose.best")));
  }
}
