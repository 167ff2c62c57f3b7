"""Words and their tags: every word has one, at its first piece, wherever it stands."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from bertsmith.bundle import load_bundle, save_bundle
from bertsmith.errors import InputError
from bertsmith.model.config import BertConfig
from bertsmith.model.task_heads import BertForTagging
from bertsmith.tasks.entities import Entity
from bertsmith.tasks.inference import Inference
from bertsmith.tasks.kind import Encoding
from bertsmith.tasks.source import RowSet, hold_out, limit
from bertsmith.tasks.tagged_rows import TaggedRow, row_of_words, words_of
from bertsmith.tasks.tagged_source import TaggedRows
from bertsmith.tasks.tagging import TAGGING, TaggedWords, by_words, encode_words, predicted_tags, tag_names
from bertsmith.tasks.task import TASKS
from bertsmith.text.config import TokenizerConfig
from bertsmith.text.tokenizer import SPECIAL_TOKENS, Tokenizer

LABELS = ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
TOKENIZER = Tokenizer(
    [*SPECIAL_TOKENS, "ada", "lives", "in", "rome", "new", "york", "##er", "##s", "x"], TokenizerConfig()
)
SHAPE = BertConfig(
    vocab_size=TOKENIZER.vocab_size,
    hidden_size=32,
    num_layers=2,
    num_heads=2,
    intermediate_size=64,
    max_positions=64,
    initializer_std=0.3,
)
INFERENCE = Inference(torch.device("cpu"), torch.float32)


def encode(rows: list[TaggedRow], seq_len: int = 64, **settings: str) -> TaggedWords:
    encoding = Encoding(TOKENIZER, seq_len, "tail", settings)
    return encode_words(TASKS["tag"], RowSet(rows, "rows.txt"), LABELS, encoding)


def model() -> BertForTagging:
    torch.manual_seed(0)
    return BertForTagging(SHAPE, len(LABELS)).eval()


def pieces(split: TaggedWords, window: int) -> list[str]:
    return [TOKENIZER.token(id) for id in split.encoded[window].ids]


C041 = row_of_words(
    ["Ada", "\u200e", "\u00ad", "lives", "\ufe0f", "Rome"], [Entity(0, 1, "PER"), Entity(5, 6, "LOC")], 1, 0
)


def test_c041_words_without_pieces_move_no_label() -> None:
    split = encode([C041])
    assert [LABELS[number] for number in split.gold] == ["B-PER", "O", "O", "O", "O", "B-LOC"]
    batch = split.batch([0])
    assert TAGGING.objective(split).counts(batch) == {"loss": 6, "accuracy": 6}
    at_picks = [TOKENIZER.token(id) for id in batch.tokens.input_ids[batch.picks].tolist()]
    assert at_picks == ["ada", "[UNK]", "[UNK]", "lives", "[UNK]", "rome"]
    assert LABELS[batch.labels[at_picks.index("rome")]] == "B-LOC"
    scores = by_words(split, TAGGING.outputs(model(), split, INFERENCE))
    assert scores.shape == (6, len(LABELS))
    scores[:] = 0
    scores[:, LABELS.index("I-LOC")] = 9  # a model that takes everything for a place
    assert predicted_tags(split, scores) == [["I-LOC", "O", "O", "I-LOC", "O", "I-LOC"]]
    (answer,) = TAGGING.answers(split, [scores], LABELS, {})
    assert answer["words"] == ["Ada", "\u200e", "\u00ad", "lives", "\ufe0f", "Rome"]
    assert len(answer["tags"]) == 6
    assert TAGGING.score(TASKS["tag"], split, [scores], {}).metrics["accuracy"] == pytest.approx(3 / 6)


@pytest.mark.parametrize(
    "words", [["\u200e"], ["", "Ada", ""], ["\u0000", "\ufffd", "\t"], ["Ada"] * 3 + ["\u200d"]]
)
def test_c041_rows_of_nothing_and_empty_words_have_all_their_tags(words: list[str]) -> None:
    split = encode([row_of_words(words, None, 1, 0), row_of_words(["Rome"], None, 2, 1)])
    answers = TAGGING.answers(split, TAGGING.outputs(model(), split, INFERENCE), LABELS, {})
    assert [len(answer["tags"]) for answer in answers] == [len(words), 1]
    assert [tag for word, tag in zip(words, answers[0]["tags"], strict=True) if word != "Ada"] == ["O"] * (
        len(words) - words.count("Ada")
    )


def test_a_text_without_words_has_no_tags() -> None:
    rows = [TaggedRow(text, words_of(text), (), line, line) for line, text in enumerate(["", "Ada", " \n"])]
    split = encode(rows)
    assert len(split.encoded) == 1
    answers = TAGGING.answers(split, TAGGING.outputs(model(), split, INFERENCE), LABELS, {})
    assert [answer["words"] for answer in answers] == [[], ["Ada"], []]


def test_tags_stand_at_first_pieces() -> None:
    split = encode([row_of_words(["newers", "York", "adas"], [Entity(0, 2, "LOC")], 1, 0)])
    assert pieces(split, 0) == ["[CLS]", "new", "##er", "##s", "york", "ada", "##s", "[SEP]"]
    assert split.encoded[0].picks.tolist() == [1, 4, 5]
    assert [LABELS[number] for number in split.gold] == ["B-LOC", "I-LOC", "O"]


def document(sentences: int, number: int = 0, words: int = 7) -> list[TaggedRow]:
    return [
        row_of_words(
            ["Ada", "lives", "in", *["newers"] * (words - 4), "Rome"],
            [Entity(words - 1, words, "LOC")],
            s,
            number,
        )
        for s in range(sentences)
    ]


@pytest.mark.parametrize("seq_len", [8, 9, 20, 64])
def test_every_word_is_scored_once_beyond_any_limit(seq_len: int) -> None:
    split = encode([*document(9), *document(1, 1, 200), *document(2, 2)], seq_len)
    words = np.concatenate([window.words for window in split.encoded])
    assert sorted(words.tolist()) == list(range(len(split.gold)))
    assert max(len(window.ids) for window in split.encoded) <= seq_len
    firsts = [TOKENIZER.token(window.ids[pick]) for window in split.encoded for pick in window.picks]
    spelled = [word for row in split.rows.rows for word in row.spelled]
    assert [firsts[place] for place in np.argsort(words)] == [
        {"newers": "new"}.get(word, word.lower()) for word in spelled
    ]
    answers = TAGGING.answers(split, TAGGING.outputs(model(), split, INFERENCE), LABELS, {})
    assert [len(answer["tags"]) for answer in answers] == [len(row.words) for row in split.rows.rows]
    assert split.truncated == [False] * 12


def test_context_is_the_document_or_the_sentence() -> None:
    rows = [*document(2), *document(1, 1)]
    together, apart = encode(rows), encode(rows, context="sentence")
    assert [len(window.picks) for window in together.encoded] == [14, 7]
    assert [len(window.picks) for window in apart.encoded] == [7, 7, 7]
    near, alone = (by_words(split, TAGGING.outputs(model(), split, INFERENCE)) for split in (together, apart))
    assert np.abs(near[:14] - alone[:14]).max() > 1e-3
    assert near[14:] == pytest.approx(alone[14:], abs=1e-5)


def test_outputs_do_not_depend_on_the_batches() -> None:
    split = encode([row for number in range(6) for row in document(number % 3 + 1, number, 5 + number)], 20)
    whole = by_words(split, TAGGING.outputs(model(), split, INFERENCE))
    for batch_tokens in (1, 37):
        some = TAGGING.outputs(model(), split, dataclasses.replace(INFERENCE, batch_tokens=batch_tokens))
        assert by_words(split, some) == pytest.approx(whole, abs=1e-5)


def test_a_word_longer_than_half_a_window_loses_pieces_and_says_so() -> None:
    split = encode([row_of_words(["new" + "er" * 9, "Rome"], [Entity(1, 2, "LOC")], 1, 0)], 10)
    assert split.truncated == [True]
    assert len(split.gold) == 2


def test_transformers_gives_the_same_logits_from_the_same_directory(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    ours = model()
    task = {"task": "tag", "head": "tagging", "labels": list(LABELS), "seq_len": 64}
    save_bundle(tmp_path / "model", ours, TOKENIZER, task, "card")
    theirs = transformers.BertForTokenClassification.from_pretrained(tmp_path / "model").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    assert theirs.config.id2label == dict(enumerate(LABELS))
    words = ["newers", "York", "adas", "unknown", "Rome"]
    encoded = tokenizer([words], is_split_into_words=True, return_tensors="pt")
    ids = encoded.word_ids(0)
    with torch.no_grad():
        logits = theirs(**encoded).logits[0][[ids.index(word) for word in range(len(words))]]
    split = encode([row_of_words(words, None, 1, 0)])
    assert split.encoded[0].ids.tolist() == encoded["input_ids"][0].tolist()
    stored = load_bundle(tmp_path / "model")
    for mine in (ours, TAGGING.load_model(stored, None)):
        assert by_words(split, TAGGING.outputs(mine, split, INFERENCE)) == pytest.approx(
            logits.numpy(), abs=1e-5
        )


def test_a_tagger_of_transformers_is_a_tagger_here(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    save_bundle(tmp_path / "ours", model(), TOKENIZER, None, "card")
    theirs = transformers.BertForTokenClassification.from_pretrained(tmp_path / "ours")
    theirs.config.id2label = dict(enumerate(LABELS))
    theirs.save_pretrained(tmp_path / "theirs")
    for name in ("vocab.txt", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "theirs" / name).write_bytes((tmp_path / "ours" / name).read_bytes())
    bundle = load_bundle(tmp_path / "theirs")
    assert bundle.task == {"task": "tag", "head": "tagging", "labels": list(LABELS)}


@pytest.mark.parametrize("kind", ["roberta", "roberta-prelayernorm"])
def test_transformers_loads_the_other_kinds_too(tmp_path: Path, kind: str) -> None:
    transformers = pytest.importorskip("transformers")
    change = {"norm": "pre"} if kind == "roberta-prelayernorm" else {"family": "roberta", "num_segments": 1}
    torch.manual_seed(1)
    ours = BertForTagging(dataclasses.replace(SHAPE, **change), len(LABELS)).eval()
    task = {"task": "tag", "head": "tagging", "labels": list(LABELS)}
    save_bundle(tmp_path / "model", ours, TOKENIZER, task, "card")
    theirs = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path / "model").eval()
    assert type(theirs).__name__.endswith("ForTokenClassification")
    split = encode([row_of_words(["newers", "York", "Rome"], None, 1, 0)])
    window = split.encoded[0]
    with torch.no_grad():
        logits = theirs(torch.from_numpy(window.ids)[None]).logits[0][window.picks]
    loaded = TAGGING.load_model(load_bundle(tmp_path / "model"), None)
    assert by_words(split, TAGGING.outputs(loaded, split, INFERENCE)) == pytest.approx(
        logits.numpy(), abs=1e-5
    )


def test_labels_are_found_in_the_training_rows() -> None:
    rows = RowSet([row_of_words(["a", "b"], [Entity(0, 1, "PER"), Entity(1, 2, "LOC")], 1, 0)], "rows.txt")
    assert tag_names(TASKS["tag"], rows) == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
    with pytest.raises(InputError, match=r"rows\.txt: no entity"):
        tag_names(TASKS["tag"], RowSet([row_of_words(["a"], [], 1, 0)], "rows.txt"))
    with pytest.raises(InputError, match=r"rows\.txt: no tags or spans"):
        tag_names(TASKS["tag"], RowSet([row_of_words(["a"], None, 1, 0)], "rows.txt"))


def test_what_cannot_be_used_is_refused() -> None:
    unknown = row_of_words(["a", "b"], [Entity(0, 1, "ORG")], 7, 0)
    with pytest.raises(InputError, match=r"line 7: tag 'B-ORG' is unknown to the model \(it knows O, B-LOC"):
        encode([unknown])
    with pytest.raises(InputError, match="context is 'paragraph'"):
        encode([C041], context="paragraph")
    with pytest.raises(InputError, match="a model that tags words needs O"):
        encode_words(TASKS["tag"], RowSet([C041], "x"), ("B-LOC", "I-LOC"), Encoding(TOKENIZER, 64, "tail"))


def test_documents_stay_whole_when_rows_are_chosen() -> None:
    rows = TaggedRows([row for number in range(20) for row in document(number % 4 + 1, number)], "rows.txt")
    train, dev = hold_out(rows, seed=3)
    assert not {row.document for row in train.rows} & {row.document for row in dev.rows}
    assert len(train.rows) + len(dev.rows) == len(rows.rows)
    some = limit(rows, 10, seed=3)
    assert 10 <= len(some.rows) <= 13
    kept = {row.document for row in some.rows}
    assert [row for row in rows.rows if row.document in kept] == some.rows
    with pytest.raises(InputError, match="1 documents; at least 2"):
        hold_out(TaggedRows(document(5), "rows.txt"), seed=0)
