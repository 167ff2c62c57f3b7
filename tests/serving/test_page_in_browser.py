"""The page in a real browser, with a real server and models of every kind."""

from __future__ import annotations

import dataclasses
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertsmith import predictor
from bertsmith.bundle import save_bundle
from bertsmith.model.bert import BertForPreTraining
from bertsmith.serving.served import ServedModel
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.text.vocabulary import train_bpe
from tests.recipes.tiny import SHAPE
from tests.serving.running import Client, serving

pytest.importorskip("playwright", reason="no Playwright: pip install playwright")
from playwright.sync_api import Browser, Page, Route, expect, sync_playwright

from tests.serving.browsing import MEASURE, go, opened, write

VIEWS = ["fill", "classify", "tag", "answer", "choose", "similarity", "rerank", "attention", "tokenize"]
PAGE = Path(__file__).parents[2] / "src" / "bertsmith" / "serving" / "page"
MARKUP = "<img src=x onerror=\"document.title='owned'\"><b>bad</b>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    expect.set_options(timeout=20_000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def url(models: list[ServedModel], minilm: ServedModel) -> Iterator[str]:
    with serving([*models, minilm]) as client:
        yield f"http://127.0.0.1:{client.port}/"


@pytest.fixture
def page(browser: Browser, url: str) -> Iterator[Page]:
    with opened(browser, url) as page:
        yield page


def model(models: list[ServedModel], name: str) -> Any:
    return next(model.predictor for model in models if model.name == name)


def shares(page: Page, where: str) -> dict[str, float]:
    """Return the bars of a list: name and percent."""
    rows = page.locator(f"{where} .row").all()
    found = [(row.locator(".name").inner_text(), row.locator(".number").inner_text()) for row in rows]
    return {name: float(re.sub(r"[<%\s]", "", number)) / 100 for name, number in found}


@pytest.mark.parametrize(("locale", "width"), [("en-GB", 1280), ("zh-CN", 420)])
def test_every_tab_answers_and_can_be_read(browser: Browser, url: str, locale: str, width: int) -> None:
    with opened(browser, url, locale, viewport={"width": width, "height": 900}) as page:
        page.get_by_role("tab").first.wait_for()
        tabs = [tab.get_attribute("id") for tab in page.get_by_role("tab").all()]
        assert tabs == [f"tab-{view}" for view in VIEWS]
        assert page.locator("html").get_attribute("lang") == ("en" if locale == "en-GB" else "zh-Hans")
        for view in VIEWS:
            go(page, view)
            assert page.locator(".view .warning:visible").count() == (view == "tokenize"), view
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme)
                found = page.evaluate(MEASURE)
                assert found["faintest"][0] >= 4.5, (view, scheme, found["faintest"])
                assert found["texts"] > 20
                assert found["width"] <= found["window"], (view, "scrolls sideways")
                assert found["unnamed"] == 0
                assert (found["brightness"] > 128) == (scheme == "light")


def test_words_are_hidden_guessed_filled_in_and_put_back(page: Page, models: list[ServedModel]) -> None:
    page.get_by_role("button", name="Write your own").click()
    write(page, "Your text", "so good [MASK] fine")
    page.get_by_role("button", name="Done").click()
    sheet = page.locator(".sheet")
    sheet.get_by_role("button", name="good").click()
    expect(page.locator(".guesses h2")).to_have_text("Blank 1 of 2")
    expect(page.locator(".guesses .row")).to_have_count(10)
    expected = model(models, "pretrained").fill(["so [MASK] [MASK] fine"], top=26)[0].masks
    found = shares(page, ".guesses")
    assert list(found) == [candidate.token for candidate in expected[0][:10]]
    assert list(found.values()) == pytest.approx(
        [candidate.probability for candidate in expected[0][:10]], abs=6e-4
    )
    rank = next(rank for rank, candidate in enumerate(expected[0], 1) if candidate.token == "good")
    expect(page.locator(".guesses")).to_contain_text(f"“good” stood here: guess number {rank}")
    page.locator(".guesses .row").nth(2).click()
    word = expected[0][2].token
    expect(sheet).to_contain_text(f"so {word} ")
    after = model(models, "pretrained").fill([f"so {word} [MASK] fine"])[0].masks[0][0]
    expect(sheet.locator(".blank")).to_have_text(after.token)
    page.get_by_role("button", name="Start over").click()
    expect(sheet).to_contain_text("so good ")
    expect(sheet.locator(".blank")).to_have_count(1)


def test_blanks_fill_themselves_surest_first(page: Page, models: list[ServedModel]) -> None:
    text = "so [MASK] fine [MASK] bad [MASK]"
    page.get_by_role("button", name="Write your own").click()
    write(page, "Your text", text)
    page.get_by_role("button", name="Done").click()
    page.get_by_role("button", name="Fill in all, surest first").click()
    expect(page.locator(".sheet .blank")).to_have_count(0)
    for _ in range(3):
        masks = model(models, "pretrained").fill([text])[0].masks
        surest = max(range(len(masks)), key=lambda number: masks[number][0].probability)
        parts = text.split("[MASK]")
        parts[surest : surest + 2] = [parts[surest] + masks[surest][0].token + parts[surest + 1]]
        text = "[MASK]".join(parts)
    expect(page.locator(".sheet")).to_have_text(text)


def test_each_word_is_shaded_by_its_place_among_the_guesses(page: Page, models: list[ServedModel]) -> None:
    page.get_by_role("button", name="Write your own").click()
    write(page, "Your text", "so [MASK] good 🙂")
    page.get_by_role("button", name="Done").click()
    page.get_by_role("button", name="Hide each in turn").click()
    expect(page.locator(".hint").first).to_contain_text("Each word was hidden once")
    for word, text, number in (("so", "[MASK] [MASK] good 🙂", 0), ("good", "so [MASK] [MASK] 🙂", 1)):
        guesses = model(models, "pretrained").fill([text], top=26)[0].masks[number]
        rank = next(rank for rank, guess in enumerate(guesses, 1) if guess.token == word)
        title = page.locator(".sheet .word").get_by_text(word, exact=True).get_attribute("title") or ""
        assert title.startswith(f"guess number {rank},")


def test_the_keyboard_is_enough(page: Page) -> None:
    page.locator("#tab-fill").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#tab-classify")).to_be_focused()
    expect(page.locator("#tab-classify")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("End")
    expect(page.locator("#tab-tokenize")).to_be_focused()
    page.keyboard.press("Home")
    sheet = page.locator(".sheet")
    sheet.locator(".blank").wait_for()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator(".how p")).to_be_visible()
    page.keyboard.press("Tab")
    expect(sheet.locator(".blank")).to_be_focused()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(sheet.locator("button").nth(1)).to_have_class("blank")
    expect(sheet.locator("button").nth(1)).to_be_focused()
    page.keyboard.press("Delete")
    expect(sheet.locator("button").nth(1)).to_have_class("word")
    go(page, "attention")
    pieces, heads = page.locator(".pieces"), page.locator(".heads")
    pieces.locator("button").nth(1).focus()
    page.keyboard.press("ArrowRight")
    expect(pieces.locator("button").nth(2)).to_have_attribute("aria-pressed", "true")
    heads.get_by_label("All layers and heads, mean").focus()
    page.keyboard.press("ArrowDown")
    expect(heads.get_by_label("Layer 1, mean of its heads")).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("ArrowRight")
    expect(heads.get_by_label("Layer 1, head 1", exact=True)).to_be_focused()


def test_labels_are_shown_with_their_probabilities(page: Page, models: list[ServedModel]) -> None:
    go(page, "classify")
    page.get_by_label("Model").select_option("classification")
    write(page, "Text", "so bad worda good")
    answer = model(models, "classification").classify(["so bad worda good"])[0]
    expect(page.locator(".large")).to_have_text(answer.label)
    assert shares(page, ".view") == pytest.approx(answer.probabilities, abs=6e-4)
    page.get_by_role("button", name="Which words decide?").click()
    page.locator(".weighed").first.wait_for()
    without = model(models, "classification").classify(
        [" bad worda good", "so  worda good", "so bad  good", "so bad worda "]
    )
    takes = [answer.probability - one.probabilities[answer.label] for one in without]
    shown = [word.get_attribute("title") or "" for word in page.locator(".weighed").all()]
    signs = [float(text.replace("−", "-").rstrip("%")) / 100 for text in shown]
    assert signs == pytest.approx(takes, abs=6e-4)
    page.get_by_label("Model").select_option("regression")
    write(page, "Text", "so bad worda good")
    value = model(models, "regression").regress(["so bad worda good"])[0].value
    expect(page.locator(".large")).to_have_text(f"{value:.2f}".replace("-", "−"))
    page.get_by_label("Model").select_option("pairs")
    expect(page.get_by_label("Second text")).to_be_visible()


def test_places_count_characters_of_any_plane(page: Page, models: list[ServedModel]) -> None:
    text = "𠮷🙂 so good 🙂 worda bad"
    go(page, "tag")
    write(page, "Text", text)
    entities = model(models, "tagging").tag([text])[0].entities
    assert entities, "the model finds some"
    marked = page.locator(".entity > bdi")
    expect(marked).to_have_text([entity.text for entity in entities])
    go(page, "answer")
    write(page, "Passage", text)
    write(page, "Question", "so")
    answer = model(models, "spans").answer([("so", text)])[0]
    expect(page.locator(".large")).to_have_text(answer.text or "no answer in the passage")
    expect(page.locator("mark[data-best]")).to_have_text([answer.text] if answer.text else [])
    assert "".join(page.locator(".view .reading").all_text_contents()) == text


def test_choices_similarities_and_rankings_are_the_models(
    page: Page, models: list[ServedModel], minilm: ServedModel
) -> None:
    go(page, "choose")
    write(page, "Beginning or context", "so good")
    write(page, "Choices, one a line", "bad\n\n  fine fine\nworda")
    chosen = model(models, "choice").choose([("so good", ["bad", "fine fine", "worda"])])[0]
    expect(page.locator(".large")).to_have_text(chosen.text)
    assert list(shares(page, ".view").values()) == pytest.approx(chosen.probabilities, abs=6e-4)
    texts = ["A man plays the guitar.", "Bake the bread.", "Someone makes music."]
    go(page, "similarity")
    expect(page.get_by_label("Model")).to_have_value("minilm")
    write(page, "Texts, one a line", "\n".join(texts))
    cosines = minilm.predictor.similarity(texts).values
    cells = [
        float(cell.replace("−", "-")) for cell in page.locator(".cosines td:not(:empty)").all_inner_texts()
    ]
    assert np.reshape(cells, (3, 3)) == pytest.approx(cosines, abs=6e-3)
    expect(page.locator(".bars .name").first).to_have_text(texts[2])
    go(page, "rerank")
    write(page, "Query", "music")
    write(page, "Texts, one a line", "\n".join(texts))
    ranked = minilm.predictor.rerank("music", texts)
    expect(page.locator(".bars .name")).to_have_text([texts[one.index] for one in ranked])


def test_attention_is_shaded_as_the_model_attends(page: Page, minilm: ServedModel) -> None:
    go(page, "attention")
    page.get_by_label("Model").select_option("minilm")
    write(page, "Text", "Paris is the capital of France.")
    attention = minilm.predictor.attention(["Paris is the capital of France."])[0]
    pieces = page.locator(".pieces button")
    expect(pieces.locator("bdi")).to_have_text(attention.tokens)
    page.get_by_label("Layer 2, head 3", exact=True).click()
    pieces.nth(4).click()
    page.mouse.move(0, 0)

    def shown() -> list[float]:
        return [float(text or 0) for text in pieces.locator("small").all_inner_texts()]

    assert shown() == pytest.approx(100 * attention.weights[1, 2, 4], abs=0.51)
    page.get_by_role("button", name="Who looks at it").click()
    assert shown() == pytest.approx(100 * attention.weights[1, 2, :, 4], abs=0.51)
    page.get_by_role("button", name="Without them").click()
    inner = attention.weights[1, 2, 1:-1, 1:-1]
    inner = inner / inner.sum(axis=1, keepdims=True)
    assert shown() == pytest.approx([0, *(100 * inner[:, 3]), 0], abs=0.51)
    page.get_by_role("button", name="one back").click()
    before = np.diagonal(attention.weights[:, :, 2:-1, 1:-2], axis1=2, axis2=3).mean(axis=2)
    layer, head = np.unravel_index(before.argmax(), before.shape)
    expect(page.get_by_label(f"Layer {layer + 1}, head {head + 1}", exact=True)).to_have_attribute(
        "aria-pressed", "true"
    )


def test_attention_of_a_long_text_is_that_of_as_much_as_can_be_drawn(page: Page, minilm: ServedModel) -> None:
    go(page, "attention")
    page.get_by_label("Model").select_option("minilm")
    text = "🙂 Rome was not built in a day. " * 30
    write(page, "Text", text)
    expect(page.locator(".view .warning")).to_contain_text("Only the first 141 pieces are drawn")
    pieces = minilm.predictor.tokenize([text])[0]
    expect(page.locator(".pieces bdi")).to_have_text([*pieces.tokens[:142], "[SEP]"])
    write(page, "Second text, if there is one", "Neither was Paris.")
    second = minilm.predictor.tokenize(["Neither was Paris."])[0].tokens[1:-1]
    expect(page.locator(".pieces bdi")).to_have_text(
        [*pieces.tokens[: 142 - len(second)], "[SEP]", *second, "[SEP]"]
    )


def test_pieces_join_the_word_before_as_the_tokenizer_joins_them(page: Page) -> None:
    wordpieces = [("They play [MASK].", "##ing", "They playing."), ("A [MASK] b", " x", "A x b")]
    bytes_ = [("They play [MASK].", "ing", "They playing."), ("A [MASK] b", " x", "A x b")]
    wordpieces += [("北[MASK]是", "京", "北京是"), ("a [MASK]", "##", "a ##")]
    for of_bytes, cases in ((False, wordpieces), (True, bytes_)):
        for text, piece, expected in cases:
            found = page.evaluate(
                """([text, piece, ofBytes]) => import("/page/fill.js").then(fill => {
                     const parts = fill.partsOf(text), place = parts.findIndex(part => part.kind === "blank");
                     return fill.textOf(fill.filledIn(parts, place, piece, ofBytes));
                   })""",
                [text, piece, of_bytes],
            )
            assert found == expected


@pytest.fixture(scope="module")
def of_bytes(tmp_path_factory: pytest.TempPathFactory) -> ServedModel:
    """A model whose vocabulary is byte-level BPE."""
    vocab, merges = train_bpe(["The quick brown fox jumps over the lazy dog, 北京。"] * 9, 302)
    shape = dataclasses.replace(SHAPE, vocab_size=len(vocab))
    path = tmp_path_factory.mktemp("bytes") / "model"
    torch.manual_seed(0)
    task = {"task": "pretrain", "head": "pretraining", "labels": None, "seq_len": 64}
    save_bundle(path, BertForPreTraining(shape), Tokenizer(vocab, merges), task, "card")
    return ServedModel("bytes", predictor.load(path), "float32")


def test_vocabularies_of_bytes_are_filled_as_the_tokenizer_fills(
    browser: Browser, of_bytes: ServedModel
) -> None:
    with (
        serving([of_bytes]) as client,
        opened(browser, f"http://127.0.0.1:{client.port}/") as page,
    ):
        page.get_by_role("button", name="Write your own").click()
        page.get_by_label("Your text", exact=True).fill("The quick fox jumps")
        page.get_by_role("button", name="Done").click()
        sheet = page.locator(".sheet")
        sheet.get_by_role("button", name="quick").click()
        masked, tokenizer = "The [MASK] fox jumps", of_bytes.predictor.bundle.tokenizer
        guesses = of_bytes.predictor.fill([masked], top=tokenizer.vocab_size)[0].masks[0]
        tokens = [guess.token for guess in guesses]
        rank = 1 + tokens.index(" quick")
        said = f"guess number {rank}," if rank <= 50 else "not among the best 50"
        expect(page.locator(".guesses")).to_contain_text(said)
        number = next(number for number in range(10) if tokens[number].isascii() and tokens[number].strip())
        page.locator(".guesses .row").nth(number).click()
        id = next(id for id in range(tokenizer.vocab_size) if tokenizer.shown(id) == tokens[number])
        expect(sheet).to_have_text(tokenizer.filled(masked, [id]))


def test_pieces_are_shown_with_their_numbers(page: Page, models: list[ServedModel]) -> None:
    go(page, "tokenize")
    page.get_by_label("Model").select_option("pretrained")
    write(page, "Text", "so 🙂 worda")
    found = model(models, "pretrained").tokenize(["so 🙂 worda"])[0]
    expect(page.locator(".piece bdi")).to_have_text(found.tokens)
    expect(page.locator(".piece small")).to_have_text([str(id) for id in found.ids])
    expect(page.locator(".warning")).to_contain_text("Not in the vocabulary: 1")


def test_text_is_never_markup(page: Page) -> None:
    for view, label in (("tag", "Text"), ("classify", "Text"), ("tokenize", "Text"), ("rerank", "Query")):
        go(page, view)
        write(page, label, f"so {MARKUP} good")
    page.get_by_text("The request").click()
    expect(page.locator("pre").first).to_contain_text("<img src=x")
    assert page.locator("main img, main b b").count() == 0
    assert page.title() == "Bertsmith"


def test_what_was_cut_or_refused_is_said(page: Page) -> None:
    go(page, "classify")
    page.get_by_label("Model").select_option("classification")
    write(page, "Text", "so good " * 40)
    expect(page.locator(".status .warning")).to_contain_text("longer than the model takes")
    page.get_by_role("button", name="Which words decide?").click()
    expect(page.locator(".view")).not_to_contain_text("at most 80 words")
    go(page, "fill")
    page.get_by_role("button", name="Write your own").click()
    write(page, "Your text", "so good " * 40 + "[MASK]")
    expect(page.locator(".status .warning")).to_contain_text("beyond the model's 64 pieces")


def test_a_busy_server_is_asked_again(page: Page) -> None:
    go(page, "tokenize")
    refused: list[str] = []

    def refuse_once(route: Route) -> None:
        if refused:
            route.continue_()
        else:
            refused.append(route.request.url)
            error = {"error": {"message": "busy", "code": "busy", "type": "rate_limit_error", "param": None}}
            route.fulfill(status=429, headers={"Retry-After": "1"}, json=error)

    page.route("**/v1/tokenize", refuse_once)
    page.get_by_label("Text").fill("so so")
    expect(page.locator(".piece bdi")).to_have_text(["[CLS]", "so", "so", "[SEP]"])
    assert len(refused) == 1


def test_a_browser_that_keeps_nothing_is_enough(page: Page) -> None:
    page.add_init_script(
        "for (const name of ['localStorage', 'sessionStorage']) Object.defineProperty(window, name,"
        " { get() { throw new DOMException('blocked', 'SecurityError'); } });"
    )
    page.reload()
    page.get_by_role("button", name="中文").click()
    expect(page.locator("#tab-fill")).to_have_text("填空")


def test_an_old_answer_never_replaces_a_new_one(page: Page) -> None:
    go(page, "tokenize")
    held: list[Any] = []
    page.route("**/v1/tokenize", lambda route: held.append(route) if not held else route.continue_())
    page.get_by_label("Text").fill("bad bad bad bad")
    while not held:
        page.wait_for_timeout(20)
    write(page, "Text", "so")
    held[0].continue_()
    page.wait_for_timeout(200)
    expect(page.locator(".piece bdi")).to_have_text(["[CLS]", "so", "[SEP]"])


def test_a_link_opens_its_tab_and_texts_last_while_the_window_does(page: Page) -> None:
    go(page, "rerank")
    write(page, "Query", "is it kept?")
    page.reload()
    expect(page.get_by_label("Query")).to_have_value("is it kept?")
    page.goto(page.url.split("#")[0] + "#tag")
    expect(page.locator("#tab-tag")).to_have_attribute("aria-selected", "true")
    page.get_by_role("button", name="中文").click()
    expect(page.locator("#tab-tag")).to_have_text("实体")
    page.reload()
    expect(page.locator("html")).to_have_attribute("lang", "zh-Hans")
    page.get_by_role("button", name="深色").click()
    expect(page.locator("html")).to_have_css("color-scheme", "dark")


def test_a_link_carries_texts_and_model(browser: Browser, page: Page, url: str) -> None:
    go(page, "fill")
    page.get_by_role("button", name="Write your own").click()
    write(page, "Your text", "so [MASK]? a+b=100% & 𠮷")
    page.get_by_role("button", name="Link to this").click()
    page.get_by_text(re.compile("The link is")).wait_for()
    with opened(browser, page.url) as other:
        expect(other.locator(".sheet")).to_have_text(re.compile(r"so .+\? a\+b=100% & 𠮷"))
    go(page, "classify")
    page.get_by_label("Model").select_option("pairs")
    write(page, "Second text", "<b>bad</b>")
    page.get_by_role("button", name="Link to this").click()
    page.get_by_text(re.compile("The link is")).wait_for()
    with opened(browser, f"{page.url}&touched=&parts=x&__proto__=x") as other:
        expect(other.get_by_label("Model")).to_have_value("pairs")
        expect(other.get_by_label("Second text")).to_have_value("<b>bad</b>")


def test_a_server_with_tokens_asks_for_one(browser: Browser, models: list[ServedModel]) -> None:
    with (
        serving(models, ["secret"]) as client,
        opened(browser, f"http://127.0.0.1:{client.port}/") as page,
    ):
        page.get_by_label("Token").fill("wrong")
        page.get_by_role("button", name="Use it").click()
        expect(page.get_by_role("alert")).to_have_text("The server does not know this token.")
        page.get_by_label("Token").fill("secret")
        page.keyboard.press("Enter")
        go(page, "classify")
        page.get_by_text("The request").click()
        expect(page.locator("pre").first).to_contain_text('-H "Authorization: Bearer $TOKEN"')
        assert "secret" not in page.content()


def test_a_server_that_is_gone_is_said(browser: Browser, models: list[ServedModel]) -> None:
    with serving(models) as client:
        context = opened(browser, f"http://127.0.0.1:{client.port}/")
        page = context.__enter__()
        go(page, "classify")
    page.get_by_label("Text", exact=True).fill("so good")
    expect(page.locator(".status .warning")).to_have_text("The server does not answer. Is it still running?")
    context.__exit__(None, None, None)


def test_both_languages_say_everything_that_is_used(page: Page) -> None:
    names = page.evaluate("import('/page/words.js').then(words => ['en', 'zh'].map(words.namesIn))")
    assert names[0] == names[1]
    text = "".join(path.read_text(encoding="utf-8") for path in sorted(PAGE.glob("*.js")))
    used = set(re.findall(r'\bt\(\s*"([\w.]+)"', text))
    assert used <= set(names[0])
    assert len(used) > 80


def test_the_files_are_loaded_at_once() -> None:
    text = (PAGE / "index.html").read_text(encoding="utf-8")
    loaded = re.findall(r'(?:href|src)="page/([\w.]+)"', text)
    assert sorted(loaded) == sorted(path.name for path in PAGE.iterdir() if path.name != "index.html")


def test_the_files_are_small_and_name_no_other_place() -> None:
    files = sorted(PAGE.iterdir())
    assert sum(path.stat().st_size for path in files) < 150_000
    text = "".join(path.read_text(encoding="utf-8") for path in files)
    assert re.findall(r"https?://[^\s\"']+", text) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text)


def test_a_policy_keeps_foreign_scripts_out(client: Client) -> None:
    policy = client.get("/").headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
