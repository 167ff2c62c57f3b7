/** Words to blank, and what the model puts there. */

import { arrows, make, oneStop, put } from "./dom.js";
import { bars, button, examples, whenWritten, wordsOf } from "./parts.js";
import { bare, MOST_WORDS, strength, surprises } from "./surprise.js";

const MASK = "[MASK]";
const SHOWN = 10, ASKED = 50;
const STEP_MILLISECONDS = 600;

const word = (text) => ({ text, kind: text.trim() === "" ? "gap" : "word", original: null, filled: false });
const blank = (original) => ({ text: MASK, kind: "blank", original, filled: false });

/**
 * Cut a text into parts.
 * @returns {Array<{text: string, kind: "word"|"gap"|"blank", original: string|null, filled: boolean}>}
 *   original: what stood there before it was blanked ("": nothing); filled: a guess was put there.
 */
export function partsOf(text) {
  return text.split(MASK).flatMap((between, number) => [
    ...(number === 0 ? [] : [blank(null)]), ...wordsOf(between).map(word),
  ]);
}

export const textOf = (parts) => parts.map((part) => part.text).join("");

/** Return the places of the blanks. */
const blanksOf = (parts) => parts.flatMap((part, place) => (part.kind === "blank" ? [place] : []));

/**
 * Put a piece into the blank at a place; a piece that goes on with a word moves up to it.
 * @param {boolean} ofBytes whether a piece that begins a word says so by a blank, instead of the others by "##".
 */
export function filledIn(parts, place, piece, ofBytes) {
  const joins = ofBytes ? !piece.startsWith(" ") : piece.startsWith("##") && piece.length > 2;
  const next = parts.with(place, {
    ...parts[place], text: joins && !ofBytes ? piece.slice(2) : piece.trim(), kind: "word", filled: true,
  });
  return joins && place > 0 && next[place - 1].kind === "gap" ? next.toSpliced(place - 1, 1) : next;
}

/** Put back what stood at a place; nothing, where nothing did. */
export const restored = (parts, place) => (
  parts[place].original ? parts.with(place, word(parts[place].original)) : parts.toSpliced(place, 1)
);

/** Put back everything that stood anywhere. */
export const allRestored = (parts) => parts.flatMap((part) => (
  part.original === null ? [part] : part.original === "" ? [] : [word(part.original)]
));

export class Fill {
  static id = "fill";
  static verbs = ["fill"];

  constructor(room) {
    this.room = room;
    this.state = room.state;
    if (this.state.text !== undefined) this.state.parts = this.partsOf(this.state.text);  // a link came with it
    this.state.parts ??= partsOf(room.tries("fill")[0]);
    delete this.state.text;
    this.state.active ??= 0;
    this.found = null;
    this.surprises = null;
    this.filling = 0;
    this.writing = false;
    const { t } = room;
    this.sheet = make("div.sheet", { role: "group", "aria-label": t("fill.sheet"), dir: "auto" });
    arrows(this.sheet);
    this.desk = make("div.desk", {}, this.sheet);
    this.guesses = make("div.guesses");
    this.hint = make("p.hint");
    this.writeButton = button(t("fill.write"), () => this.write(!this.writing));
    this.allButton = button(t("fill.all"), () => this.fillAll());
    this.turnButton = button(t("fill.turn"), () => this.hideInTurn());
    this.overButton = button(t("fill.over"), () => this.change(allRestored(this.state.parts)));
    this.area = this.makeArea();
    this.ask = room.asks((signal) => this.question(signal), (answers) => this.answered(answers));
    const tried = examples(t("examples"), room.tries("fill"), (text) => {
      this.write(false);
      this.change(partsOf(text), 0);
    });
    const tools = make("div.tools", {}, this.writeButton, this.allButton, this.turnButton, this.overButton);
    const left = make("div", {}, this.hint, this.desk, tools, tried);
    this.element = make("div.columns", {}, left, this.guesses);
    this.draw();
    this.ask(0);
  }

  /** Return what a link holds. */
  shared() {
    return { text: textOf(this.state.parts) };
  }

  /** Take what was written; what stood in blanks is still known, if there are as many. */
  written() {
    const parts = this.partsOf(this.area.value), before = blanksOf(this.state.parts), after = blanksOf(parts);
    if (before.length === after.length) {
      after.forEach((place, number) => { parts[place].original = this.state.parts[before[number]].original; });
    }
    this.change(parts, this.state.active, 250);
  }

  partsOf(text) {
    return partsOf(this.room.ofBytes ? text.replaceAll("<mask>", MASK) : text);
  }

  makeArea() {
    return make("textarea.sheet", {
      "aria-label": this.room.t("fill.sheet"), dir: "auto", spellcheck: "false", rows: 3,
      ...whenWritten(() => this.written()),
      onkeydown: (event) => {
        const done = event.key === "Escape" || (event.key === "Enter" && (event.ctrlKey || event.metaKey));
        if (done && !event.isComposing) this.write(false);
      },
    });
  }

  /** Take other parts; a filling that goes on by itself ends, unless it is the one that changes them. */
  change(parts, active = this.state.active, pause = 0, byItself = false) {
    if (!byItself) this.filling += 1;
    this.state.parts = parts;
    this.state.active = Math.max(0, Math.min(active, blanksOf(parts).length - 1));
    this.found = null;
    this.surprises = null;
    this.draw();
    this.ask(pause);
  }

  question(signal) {
    const { parts } = this.state, blanks = blanksOf(parts);
    if (blanks.length === 0) return null;
    const originals = blanks.map((place) => ` ${parts[place].original || "-"}`);
    return Promise.all([
      this.room.ask("v1/fill", { texts: [textOf(parts)], top: Math.min(ASKED, this.room.vocab) }, signal),
      this.room.ask("v1/tokenize", { texts: originals }, signal),
    ]);
  }

  answered(answers) {
    this.found = answers && answers[0].answer.results[0].masks.map((candidates, number) => (
      { candidates, pieces: answers[1].answer.results[number].tokens.slice(1, -1) }
    ));
    this.draw();
  }

  pick(place, piece, byItself = false) {
    this.change(filledIn(this.state.parts, place, piece, this.room.ofBytes), this.state.active, 0, byItself);
  }

  restore(place) {
    this.change(restored(this.state.parts, place));
    this.focusAt(place);
  }

  blankOut(place) {
    const part = this.state.parts[place];
    const parts = this.state.parts.with(place, blank(part.original ?? part.text));
    this.change(parts, blanksOf(parts).indexOf(place));
    this.focusAt(place);
  }

  addBlanks(place, count) {
    const more = Array.from({ length: count }, () => [word(" "), blank("")]).flat();
    this.change(this.state.parts.toSpliced(place + 1, 0, ...more));
  }

  /** Fill the blank that the model is surest of, look again, and so on: each guess sees the ones before. */
  async fillAll() {
    const mine = this.filling += 1;
    while (mine === this.filling && this.element.isConnected) {
      const blanks = blanksOf(this.state.parts);
      if (blanks.length === 0) return;
      if (this.found !== null) {
        const best = this.found.map(({ candidates }) => candidates[0]);
        const number = best.reduce((at, one, here) => (one.probability > best[at].probability ? here : at), 0);
        this.pick(blanks[number], best[number].token, true);
      }
      await new Promise((done) => setTimeout(done, STEP_MILLISECONDS));
    }
  }

  /** Hide each word in turn, and shade it by how far down the guesses it is. */
  async hideInTurn() {
    const { parts } = this.state;
    const found = await surprises(this.room, parts, (all, place) => {
      const text = textOf(all.with(place, blank(null)));
      return { text, number: blanksOf(all).filter((one) => one < place).length };
    });
    if (found === null || parts !== this.state.parts) return;
    this.surprises = found;
    this.draw();
  }

  write(on) {
    this.filling += 1;
    this.writing = on;
    if (on) this.area.value = textOf(this.state.parts);
    put(this.desk, on ? this.area : this.sheet);
    this.draw();
    (on ? this.area : this.writeButton).focus();
  }

  focusAt(place) {
    this.sheet.querySelector(`[data-place="${place}"]`)?.focus();
  }

  draw() {
    const { t } = this.room, blanks = blanksOf(this.state.parts);
    const focused = this.sheet.contains(document.activeElement) ? document.activeElement.dataset.place : null;
    put(this.sheet, this.state.parts.map((part, place) => this.drawPart(part, place, blanks)));
    oneStop(this.sheet);
    if (focused !== null) this.focusAt(focused);
    put(this.guesses, this.drawGuesses(blanks));
    this.hint.textContent = t(this.surprises === null ? "fill.hint" : "fill.turned");
    this.allButton.disabled = blanks.length === 0;
    const count = this.state.parts.filter((part) => part.kind === "word").length;
    this.turnButton.disabled = this.writing || count === 0 || count > MOST_WORDS;
    this.overButton.disabled = this.state.parts.every((part) => part.original === null);
    this.writeButton.textContent = t(this.writing ? "fill.done" : "fill.write");
  }

  drawPart(part, place, blanks) {
    const { t } = this.room;
    if (part.kind === "gap") return document.createTextNode(part.text);
    if (part.kind === "word") {
      const surprise = this.surprises?.get(place);
      const word = make("button.word", {
        type: "button", "data-place": place, "data-filled": part.filled, onclick: () => this.blankOut(place),
        title: surprise === undefined ? t("fill.blank.it") : this.saidOf(surprise),
      }, part.text);
      if (surprise !== undefined) word.style.backgroundColor = `rgb(223 132 32 / ${0.6 * strength(surprise)})`;
      return word;
    }
    const number = blanks.indexOf(place), best = this.found?.[number].candidates[0].token ?? "…";
    return make("button.blank", {
      type: "button", "data-place": place, "aria-pressed": String(number === this.state.active),
      "aria-label": t("fill.blank", { number: number + 1, guess: best }),
      onclick: () => {
        this.state.active = number;
        this.draw();
      },
      onkeydown: (event) => {
        if (event.key === "Delete" || event.key === "Backspace") this.restore(place);
      },
    }, best);
  }

  saidOf({ rank, share }) {
    const { t, numbers } = this.room;
    return rank === null ? t("fill.turned.beyond") : t("fill.turned.rank", { rank, share: numbers.percent(share) });
  }

  drawGuesses(blanks) {
    const { t, numbers } = this.room;
    const place = blanks[this.state.active], one = this.found?.[this.state.active];
    if (place === undefined) return [make("p.hint", {}, t("fill.none"))];
    const title = make("h2", {}, t("fill.title", { number: this.state.active + 1, count: blanks.length }));
    if (one === undefined) return [title, make("p.hint", {}, "…")];
    const original = this.state.parts[place].original, best = one.candidates.slice(0, SHOWN);
    const list = bars(best.map(({ token, probability }) => ({
      label: token, share: probability, value: numbers.percent(probability),
      marked: Boolean(original) && one.pieces.length === 1 && bare(token) === bare(one.pieces[0]),
      pick: () => {
        this.pick(place, token);
        this.focusAt(place);
      },
    })), t("fill.guesses"));
    arrows(list);
    const held = best.reduce((sum, { probability }) => sum + probability, 0);
    const share = make("p.hint", {}, t("fill.held", { count: best.length, share: numbers.percent(held) }));
    return [title, list, share, ...this.drawOriginal(original, place, one)];
  }

  /** Return what is said about the word that stood in a blank. */
  drawOriginal(original, place, { candidates, pieces }) {
    const { t, numbers } = this.room;
    if (original === null) return [];
    if (original === "") return [button(t("fill.remove"), () => this.restore(place))];
    const rank = candidates.findIndex(({ token }) => bare(token) === bare(pieces[0]));
    const named = { word: original, count: pieces.length, pieces: pieces.join(" "), best: candidates.length };
    const several = pieces.length > 1;
    const said = several ? t("fill.pieces", named)
      : rank < 0 ? t("fill.beyond", named)
        : t("fill.rank", { ...named, rank: rank + 1, share: numbers.percent(candidates[rank].probability) });
    const more = several
      ? button(t("fill.more", named), () => this.addBlanks(place, pieces.length - 1)) : null;
    return [make("p", {}, said), make("div.tools", {}, button(t("fill.back"), () => this.restore(place)), more)];
  }
}
