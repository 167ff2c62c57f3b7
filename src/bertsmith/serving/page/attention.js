/** Where each piece looks, in every layer and head. */

import { arrows, make, oneStop, put } from "./dom.js";
import { keeping, lineOf, matricesOf, mean, mostOf, paint, patternsOf } from "./heads.js";
import { between, button, choice, examples, field, setField } from "./parts.js";

const LABELLED = 28;
const STRONGEST = 0.7;
const MOST_WEIGHTS = 1.5e6;  // of all layers and heads: more are slow to send and to draw

export class Attention {
  static id = "attention";
  static verbs = ["attention"];
  static fitness = (model) => model.architecture.layers * model.architecture.heads;

  constructor(room) {
    const { t, state } = room;
    this.room = room;
    this.state = state;
    const [one, other] = room.pairs ? room.tries("pairs")[0] : [room.tries("attention")[0], ""];
    state.text ??= one;
    state.second ??= state.touched ? "" : other;
    state.direction ??= "to";
    state.specials ??= "with";
    this.found = null;
    this.ask = room.asks((signal) => this.question(signal), (asked) => this.answered(asked));
    const first = field(t("text"), state.text, (text) => this.write({ text }));
    const second = room.secondField(state.second, (text) => this.write({ second: text }));
    const tried = examples(t("examples"), room.tries("attention"), (text) => {
      setField(first, text);
      this.write({ text, piece: null }, 0);
    });
    const directions = { to: t("attention.to"), from: t("attention.from") };
    const specials = { with: t("attention.with"), without: t("attention.without") };
    this.pieces = make("div.pieces", { role: "group", "aria-label": t("attention.pieces") });
    this.heads = make("div.heads", { role: "group", "aria-label": t("attention.heads") });
    for (const group of [this.pieces, this.heads]) arrows(group, (stop) => stop.click());
    this.matrix = make("div.matrix");
    this.said = make("p.said", { "aria-live": "polite" });
    const choices = make("div.tools", {},
      choice(t("attention.direction"), directions, state.direction, (value) => this.show({ direction: value })),
      choice(t("attention.specials"), specials, state.specials, (value) => this.show({ specials: value })));
    const finds = make("div.examples", {}, make("span.label", {}, t("attention.find")),
      ["before", "after", "itself", "special", "wide"].map((name) => button(t(`attention.${name}`), () => this.find(name))));
    this.cut = make("p.warning", { hidden: true });
    this.results = make("div.results", { hidden: true },
      this.cut, choices, this.pieces, this.said,
      make("div.columns.even", {}, make("div", {}, make("h2", {}, t("attention.heads")), this.heads, finds), this.matrix));
    this.element = make("div", {}, first, second, tried, this.results);
    this.ask(0);
  }

  write(change, pause = 250) {
    Object.assign(this.state, change);
    this.ask(pause);
  }

  question(signal) {
    const input = this.room.input(this.state.text, this.state.second);
    return input && this.askShort(Array.isArray(input) ? input : [input], signal);
  }

  /** Ask about as much of one or two texts as can be drawn. */
  async askShort(texts, signal) {
    const { layers, heads } = this.room.model.architecture;
    const room = Math.floor(Math.sqrt(MOST_WEIGHTS / (layers * heads))) - 3;
    const whole = await this.room.ask("v1/tokenize", { texts }, signal);
    const offsets = whole.answer.results.map((result) => result.offsets.slice(1, -1));
    const [first, second = 0] = offsets.map(({ length }) => length);
    const most = [Math.max(Math.ceil(room / 2), room - second), Math.max(Math.floor(room / 2), room - first)];
    const kept = texts.map((text, at) => {
      const end = offsets[at][most[at] - 1]?.[1];
      return end === undefined || offsets[at].length <= most[at] ? text : between(Array.from(text), 0, end);
    });
    this.short = kept.every((text, at) => text === texts[at]) ? null : Math.min(first, most[0]) + Math.min(second, most[1]);
    return this.room.ask("v1/attention", { texts: [texts.length === 1 ? kept[0] : kept] }, signal);
  }

  answered(asked) {
    this.results.hidden = asked === null;
    if (asked === null) return;
    this.cut.hidden = this.short === null;
    this.cut.textContent = this.short === null ? "" : this.room.t("attention.cut", { count: this.short });
    const { tokens, offsets, weights } = asked.answer.results[0];
    const special = offsets.map(([start, end]) => start === end);
    const matrices = matricesOf(weights);
    const patterns = matrices.map((layer) => layer.map((matrix) => patternsOf(matrix, special)));
    this.found = { tokens, special, matrices, patterns };
    if (!(this.state.layer < matrices.length)) this.state.layer = null;
    if (!(this.state.head < matrices[0].length)) this.state.head = null;
    if (!(this.state.piece < tokens.length)) this.state.piece = Math.max(special.indexOf(false), 0);
    this.drawPieces();
    this.drawHeads();
    this.show({});
  }

  /** Go to the head that follows a pattern most. */
  find(name) {
    const [layer, head] = mostOf(this.found.patterns, name);
    this.show({ layer, head });
  }

  drawPieces() {
    const { tokens, special } = this.found;
    put(this.pieces, tokens.map((token, piece) => make("button.piece", {
      type: "button", "data-special": special[piece], "aria-pressed": String(piece === this.state.piece),
      onclick: () => this.show({ piece }),
      onpointerenter: (event) => { if (event.pointerType === "mouse") this.shade(piece); },
    }, make("bdi", {}, token), make("small", {}))));
    this.pieces.onpointerleave = () => this.shade(this.state.piece);
    oneStop(this.pieces);
  }

  drawHeads() {
    const { matrices } = this.found, { t } = this.room, heads = matrices[0].length;
    const cell = (layer, head, matrix, label) => {
      const canvas = make("canvas", { "aria-hidden": "true" });
      paint(canvas, matrix);
      return make("button.head", {
        type: "button", "aria-label": label, title: label, "data-key": `${layer}.${head}`,
        onclick: () => this.show({ layer, head }),
      }, canvas);
    };
    const columns = Array.from({ length: heads }, (_, at) => make("span.axis", { "data-column": true }, String(at + 1)));
    const means = matrices.map(mean);
    const all = cell(null, null, mean(means), t("attention.all"));
    const rows = matrices.flatMap((layer, at) => [
      make("span.axis", {}, String(at + 1)),
      cell(at, null, means[at], t("attention.layer", { layer: at + 1 })),
      ...layer.map((matrix, head) => cell(at, head, matrix, t("attention.head", { layer: at + 1, head: head + 1 }))),
    ]);
    this.heads.style.setProperty("--heads", heads + 1);
    put(this.heads, make("span.axis", {}, t("mean")), all, columns, rows);
    oneStop(this.heads);
  }

  /** Take other choices, and draw what follows from them. */
  show(change) {
    Object.assign(this.state, change);
    const { layer, head, piece, specials } = this.state, { matrices, special } = this.found;
    const one = layer === null ? mean(matrices.flat()) : head === null ? mean(matrices[layer]) : matrices[layer][head];
    this.shown = specials === "with" ? one : keeping(one, special.map((is) => !is));
    this.hidden = special.map((is) => is && specials === "without");
    if (this.hidden[piece]) this.state.piece = Math.max(special.indexOf(false), 0);
    for (const stop of this.heads.querySelectorAll("button")) {
      stop.setAttribute("aria-pressed", String(stop.dataset.key === `${layer}.${head}`));
    }
    this.drawMatrix();
    this.shade(this.state.piece);
  }

  /** Shade the pieces by how much a piece looks at them, or they at it. */
  shade(piece) {
    if (this.hidden[piece]) return;
    const line = lineOf(this.shown, piece, this.state.direction), most = Math.max(...line, 1e-9);
    [...this.pieces.children].forEach((stop, at) => {
      stop.disabled = this.hidden[at];
      stop.style.backgroundColor = `rgb(63 127 209 / ${STRONGEST * line[at] / most})`;
      stop.setAttribute("aria-pressed", String(at === piece));
      stop.querySelector("small").textContent = line[at] >= 0.005 ? Math.round(100 * line[at]) : "";
    });
    this.mark(piece);
    this.said.textContent = this.sentence(piece, line);
  }

  sentence(piece, line) {
    const { t, numbers } = this.room, { tokens, patterns } = this.found, { layer, head, direction } = this.state;
    const where = layer === null ? t("attention.all")
      : head === null ? t("attention.layer", { layer: layer + 1 }) : t("attention.head", { layer: layer + 1, head: head + 1 });
    const best = line.map((weight, at) => [weight, at]).sort((a, b) => b[0] - a[0])
      .filter(([weight], place) => place === 0 || (place < 3 && weight >= 0.01));
    const others = best.map(([weight, at]) => `${tokens[at]} ${numbers.percent(weight)}`).join(t("comma"));
    const said = t(`attention.${direction}.said`, { where, piece: tokens[piece], others });
    if (layer === null || head === null) return said;
    const shares = patterns[layer][head];
    const [name, share] = ["before", "after", "itself", "special"].map((one) => [one, shares[one]]).sort((a, b) => b[1] - a[1])[0];
    return share < 0.3 ? said : `${said} ${t(`attention.${name}.said`, { share: numbers.percent(share) })}`;
  }

  drawMatrix() {
    const { tokens } = this.found, { t, numbers } = this.room, size = tokens.length;
    const canvas = make("canvas", { role: "img", "aria-label": t("attention.matrix") });
    paint(canvas, this.shown);
    const read = make("p.hint", {}, t("attention.matrix.hint"));
    this.line = make("span.line");
    const at = (event) => {
      const box = canvas.getBoundingClientRect();
      const place = (share) => Math.max(0, Math.min(size - 1, Math.floor(share * size)));
      return [place((event.clientY - box.top) / box.height), place((event.clientX - box.left) / box.width)];
    };
    canvas.addEventListener("pointermove", (event) => {
      const [i, j] = at(event), weight = this.shown.values[i * size + j];
      read.textContent = t("attention.cell", { from: tokens[i], to: tokens[j], share: numbers.percent(weight) });
    });
    canvas.addEventListener("click", (event) => this.show({ piece: at(event)[this.state.direction === "to" ? 0 : 1] }));
    const names = (kind) => make(`div.${kind}`, { "aria-hidden": "true" },
      size > LABELLED ? [] : tokens.map((token) => make("bdi", {}, token)));
    put(this.matrix, make("h2", {}, t("attention.matrix")),
      make("div.board", {}, names("above"), names("beside"), make("div.square", {}, canvas, this.line)), read);
  }

  /** Frame the line of the matrix that belongs to a piece. */
  mark(piece) {
    const share = 100 / this.found.tokens.length, start = `${piece * share}%`, along = `${share}%`;
    const rows = this.state.direction === "to";
    Object.assign(this.line.style, rows ? { top: start, height: along, left: 0, width: "100%" }
      : { left: start, width: along, top: 0, height: "100%" });
  }
}
