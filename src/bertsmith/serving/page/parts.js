/** Parts that several views are made of. */

import { make } from "./dom.js";

/** Return a text's piece between two places that count code points, as the server's do. */
export const between = (points, start, end) => points.slice(start, end).join("");

/**
 * Cut a text at spans.
 * @param {string} text the whole.
 * @param {Array<{start: number, end: number}>} spans by code points, in order, none over another.
 * @returns {Array<{text: string, span: object|null}>} parts that make up the text.
 */
export function cutAt(text, spans) {
  const points = Array.from(text), parts = [];
  let place = 0;
  for (const span of spans) {
    if (span.start > place) parts.push({ text: between(points, place, span.start), span: null });
    parts.push({ text: between(points, span.start, span.end), span });
    place = span.end;
  }
  if (place < points.length) parts.push({ text: between(points, place), span: null });
  return parts;
}

const WORDS = /\p{Script=Han}|[\p{L}\p{M}\p{N}]+|\s+|./gsu;

/** Cut a text into words, marks, single Chinese characters, as BERT does, and the blanks between them. */
export const wordsOf = (text) => text.match(WORDS) ?? [];

/** Return a button. */
export const button = (text, onclick) => make("button", { type: "button", onclick }, text);

/** Return the lines of a text that hold something. */
export const linesOf = (text) => text.split("\n").map((line) => line.trim()).filter((line) => line !== "");

/** Return listeners for what is written, but not for what is still being composed, as Chinese is. */
export const whenWritten = (changed) => ({
  oninput: (event) => {
    if (!event.isComposing) changed();
  },
  oncompositionend: changed,
});

/**
 * Return a labelled field for text, which grows with it.
 * @param {string} label what to write.
 * @param {string} value what is in it.
 * @param {function(string)} changed is given every new content.
 * @param {object} properties further attributes of the textarea.
 */
export function field(label, value, changed, properties = {}) {
  const area = make("textarea", {
    rows: 3, dir: "auto", autocomplete: "off", spellcheck: "false", ...properties, value,
    ...whenWritten(() => changed(area.value)),
  });
  return make("label.field", {}, make("span.label", {}, label), area);
}

/** Put a text into a field; it is the caller's to tell. */
export const setField = (label, value) => { label.querySelector("textarea").value = value; };

/**
 * Return a choice between a few values, one pressed.
 * @param {string} label what is chosen.
 * @param {object} options name by value.
 * @param {string} value the pressed one.
 * @param {function(string)} changed is given the new value.
 */
export function choice(label, options, value, changed) {
  const buttons = Object.entries(options).map(([key, name]) => make("button", {
    type: "button", "aria-pressed": String(key === value),
    onclick: () => {
      for (const [at, button] of Object.keys(options).map((one, place) => [one, buttons[place]])) {
        button.setAttribute("aria-pressed", String(at === key));
      }
      changed(key);
    },
  }, name));
  return make("div.choice", { role: "group", "aria-label": label }, buttons);
}

/** Return how numbers are written in a language. */
export function numbersOf(language) {
  const share = new Intl.NumberFormat(language, { style: "percent", minimumFractionDigits: 1, maximumFractionDigits: 1 });
  const plain = new Intl.NumberFormat(language, { minimumFractionDigits: 2, maximumFractionDigits: 2 });
  const count = new Intl.NumberFormat(language);
  return {
    percent: (value) => (value > 0 && value < 0.001 ? `< ${share.format(0.001)}` : share.format(value)),
    plain: (value) => plain.format(value).replace("-", "−"),
    count: (value) => count.format(value),
    signed: (value) => (value < 0 ? "−" : "+") + share.format(Math.abs(value)),
  };
}

/**
 * Return a list of bars.
 * @param {Array<{label: string|Node, share: number, value: string, pick: function|null, marked: boolean}>} rows
 *   share: length of the bar, 0 to 1; value: the number beside it; pick: what a click does.
 * @param {string} label what the list is.
 */
export function bars(rows, label) {
  return make("ol.bars", { "aria-label": label }, rows.map(({ label: name, share, value, pick, marked }) => {
    const bar = make("span.bar");
    bar.style.width = `${100 * Math.min(Math.max(share, 0), 1)}%`;
    const inner = [make("bdi.name", {}, name), make("span.track", { "aria-hidden": "true" }, bar), make("span.number", {}, value)];
    return make("li", {}, make(pick ? "button.row" : "div.row", {
      type: pick ? "button" : null, onclick: pick ?? null, "data-marked": marked ? true : null,
    }, inner));
  }));
}

/** Return buttons with texts to try; of several texts together the first is shown. */
export function examples(label, texts, pick) {
  return make("div.examples", {}, make("span.label", {}, label), texts.map((text) => make("button.example", {
    type: "button", onclick: () => pick(text),
  }, make("bdi", {}, [text].flat()[0].replaceAll("[MASK]", "___")))));
}
