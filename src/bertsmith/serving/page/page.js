/** The page: which models there are, what they can do, a tab for each. */

import { Answer } from "./answer.js";
import { Attention } from "./attention.js";
import { Choose } from "./choose.js";
import { Classify } from "./classify.js";
import { arrows, make, put } from "./dom.js";
import { Fill } from "./fill.js";
import { inBrowser, inWindow } from "./memory.js";
import { choice } from "./parts.js";
import { Rerank } from "./rerank.js";
import { LINKED, Room, tokenForm } from "./room.js";
import { ask } from "./server.js";
import { Similarity } from "./similarity.js";
import { Tag } from "./tag.js";
import { Tokenize } from "./tokenize.js";
import { firstLanguage, LANGUAGES, speaking } from "./words.js";

const VIEWS = [Fill, Classify, Tag, Answer, Choose, Similarity, Rerank, Attention, Tokenize];
const STATE = "bertsmith-state", LANGUAGE = "bertsmith-language", THEME = "bertsmith-theme";

/** Return the verb of a view that a model can do, or none. */
const verbOf = (view, model) => view.verbs.find((verb) => model.verbs.includes(verb));

class Page {
  constructor() {
    this.language = firstLanguage(inBrowser.get(LANGUAGE));
    this.theme = inBrowser.get(THEME) ?? "auto";
    this.kept = { models: {}, views: {}, ...JSON.parse(inWindow.get(STATE) ?? "{}") };
    this.models = null;
    addEventListener("pagehide", () => inWindow.set(STATE, JSON.stringify(this.kept)));
    addEventListener("hashchange", () => this.open(location.hash.slice(1)));
    this.draw();
    this.load();
  }

  get t() {
    return speaking(this.language);
  }

  async load() {
    put(this.main, make("p.hint", {}, this.t("loading")));
    try {
      this.models = (await ask("v1/models", null)).answer.data;
      this.draw();
    } catch (error) {
      this.failed(error);
    }
  }

  failed(error) {
    if (error.status === 401) return put(this.main, tokenForm(this.t, () => this.load()));
    put(this.main, make("p.warning", { role: "alert" }, error.status === 0 ? this.t("unreachable") : error.message),
      make("button", { type: "button", onclick: () => this.load() }, this.t("again")));
  }

  /** Draw everything anew, as at first and in another language. */
  draw() {
    const { t } = this;
    document.documentElement.lang = this.language === "zh" ? "zh-Hans" : "en";
    document.documentElement.dataset.theme = this.theme;
    document.title = t("title");
    const themes = { auto: t("theme.auto"), light: t("theme.light"), dark: t("theme.dark") };
    this.tabs = make("div.tabs", { role: "tablist", "aria-label": t("tabs") });
    this.main = make("main");
    put(document.body,
      make("header", {},
        make("h1", {}, make("img", { src: "page/icon.svg", alt: "", width: 28, height: 28 }), "Bertsmith"),
        make("div.settings", {},
          choice(t("language"), LANGUAGES, this.language, (language) => this.speak(language)),
          choice(t("theme"), themes, this.theme, (theme) => this.light(theme)))),
      make("nav", {}, this.tabs), this.main);
    if (this.models === null) return;
    this.views = VIEWS.filter((view) => this.models.some((model) => verbOf(view, model)));
    if (this.views.length === 0) return put(this.main, make("p.hint", {}, t("nothing.loaded")));
    put(this.tabs, this.views.map((view) => make("button", {
      type: "button", role: "tab", id: `tab-${view.id}`, "aria-controls": "panel",
      onclick: () => { location.hash = view.id; },
    }, t(`tab.${view.id}`))));
    this.open(location.hash.slice(1));
    arrows(this.tabs, (stop) => stop.click());
  }

  speak(language) {
    inBrowser.set(LANGUAGE, language);
    this.language = language;
    for (const [id, state] of Object.entries(this.kept.views)) if (!state.touched) delete this.kept.views[id];
    this.draw();
    document.querySelector(".choice [aria-pressed=true]").focus();
  }

  light(theme) {
    inBrowser.set(THEME, theme);
    this.theme = theme;
    document.documentElement.dataset.theme = theme;
  }

  /** Open a view by its id, with the texts of a link, if it is one; the first view, if there is none of that id. */
  open(hash) {
    if (this.views === undefined) return;
    const [id, query] = hash.split("?");
    const view = this.views.find((one) => one.id === id) ?? this.views[0];
    for (const tab of this.tabs.children) tab.setAttribute("aria-selected", String(tab.id === `tab-${view.id}`));
    this.tabs.querySelector("[aria-selected=true]").scrollIntoView({ block: "nearest", inline: "nearest" });
    const asked = new URLSearchParams(query);
    if (asked.has("model")) this.kept.models[view.id] = asked.get("model");
    const able = this.models.filter((model) => verbOf(view, model));
    const model = able.find((one) => one.id === this.kept.models[view.id])
      ?? able.reduce((best, one) => (view.fitness?.(one) > view.fitness?.(best) ? one : best));
    const state = this.kept.views[view.id] ??= {};
    for (const name of LINKED) if (asked.has(name)) Object.assign(state, { [name]: asked.get(name), touched: true });
    const room = new Room({
      view, model, verb: verbOf(view, model), state, language: this.language, t: this.t,
      signIn: () => put(this.main, tokenForm(this.t, () => this.load())),
    });
    put(this.main, make("section", { id: "panel", role: "tabpanel", "aria-labelledby": `tab-${view.id}` },
      make("p.lead", {}, this.t(`lead.${view.id}`)), this.about(view, model, able),
      make("details.how", {}, make("summary", {}, this.t("how")), make("p", {}, this.t(`how.${view.id}`))), room.element));
    room.begin();
  }

  /** Return which model answers, with a choice where several can. */
  about(view, model, able) {
    const { layers, heads, hidden_size: hidden, vocab_size: vocab } = model.architecture;
    const count = (value) => new Intl.NumberFormat(this.language).format(value);
    const facts = make("span.facts", {}, this.t("facts", {
      layers, heads, hidden: count(hidden), vocab: count(vocab), length: count(model.seq_len),
    }));
    const name = able.length === 1 ? make("b", {}, make("bdi", {}, model.id)) : make("select", {
      "aria-label": this.t("model"),
      onchange: (event) => {
        this.kept.models[view.id] = event.target.value;
        if (!this.kept.views[view.id].touched) delete this.kept.views[view.id];
        this.open(view.id);
        this.main.querySelector("select").focus();
      },
    }, able.map((one) => make("option", { value: one.id, selected: one === model }, one.id)));
    return make("p.about", {}, name, facts);
  }
}

new Page();
