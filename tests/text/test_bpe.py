"""Byte-level BPE: RoBERTa's files, ids equal to transformers', nothing lost."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer, RobertaTokenizerFast

from bertsmith.errors import InputError
from bertsmith.text.bpe import SPECIALS
from bertsmith.text.config import BpeConfig, TokenizerConfig
from bertsmith.text.tokenizer import SPECIAL_TOKENS, Tokenizer
from bertsmith.text.vocabulary import train_bpe

SENTENCES = [
    "The quick brown fox jumps over the lazy dog.",
    "It's the dog's day, isn't it? (The foxes don't think so.)",
    "北京是中国的首都。我们都知道。",
    "Größe und Maß: naïve café, 42 or 3.14 %",
]


def real_lines(shared_data: Path, part: str, number: int) -> list[str]:
    with gzip.open(shared_data / "corpus" / part / "heldout.txt.gz", "rt", encoding="utf-8") as file:
        return [line for line in file.read().split("\n") if line][:number]


@pytest.fixture(scope="session")
def real_text(shared_data: Path) -> list[str]:
    return [line for part in ("books-en", "wiki-en", "zh") for line in real_lines(shared_data, part, 400)]


@pytest.fixture(scope="session")
def trained(real_text: list[str]) -> Tokenizer:
    return Tokenizer(*train_bpe(real_text, 3000))


@pytest.fixture(scope="session")
def saved(trained: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("bpe")
    trained.save(directory)
    (directory / "config.json").write_text('{"model_type": "roberta"}')
    return directory


@pytest.fixture(scope="session")
def peer(saved: Path) -> Any:
    """RoBERTa's class of transformers, from the two files alone."""
    return RobertaTokenizerFast(vocab=str(saved / "vocab.json"), merges=str(saved / "merges.txt"))


@pytest.fixture
def small() -> Tokenizer:
    return Tokenizer(*train_bpe(SENTENCES * 5, 400))


def pieces(tokenizer: Tokenizer, text: str) -> list[str]:
    return [tokenizer.shown(id) for id in tokenizer.encode(text)]


# --- training -------------------------------------------------------------------------------------


def test_the_layout_is_robertas(trained: Tokenizer) -> None:
    assert trained.vocab[:4] == ["<s>", "<pad>", "</s>", "<unk>"]
    assert (trained.cls_id, trained.pad_id, trained.sep_id, trained.unk_id) == (0, 1, 2, 3)
    assert trained.vocab[-1] == "<mask>"
    assert trained.mask_id == trained.vocab_size - 1 == 2999
    assert trained.special_ids == {0, 1, 2, 3, 2999}
    assert trained.between_ids == [2, 2]
    assert trained.algorithm == "bpe"


_TRAINS = """
import hashlib, json, sys
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.text.vocabulary import train_bpe
lines = json.load(open(sys.argv[1]))
print(Tokenizer(*train_bpe(lines, 1500)).identity())
"""


def test_training_is_deterministic_whatever_the_threads(real_text: list[str], tmp_path: Path) -> None:
    (tmp_path / "lines.json").write_text(json.dumps(real_text[:600]))
    found = set()
    for threads in ("1", "2", "4"):
        done = subprocess.run(
            [sys.executable, "-c", _TRAINS, str(tmp_path / "lines.json")],
            env={"PATH": "", "PYTHONPATH": ":".join(sys.path), "RAYON_NUM_THREADS": threads},
            capture_output=True,
            text=True,
            check=True,
        )
        found.add(done.stdout)
    shuffled = real_text[:600]
    random.Random(0).shuffle(shuffled)
    found.add(Tokenizer(*train_bpe(shuffled, 1500)).identity() + "\n")
    assert len(found) == 1


@pytest.mark.parametrize(
    "lines, size, min_frequency, message",
    [
        (["a b"], 260, 2, "size is 260; it has to be at least 261"),
        (["a b"], 300, 0, "min_frequency is 0"),
        ([], 300, 2, "holds no words"),
        (["", "  "], 300, 2, "holds no words"),
    ],
)
def test_what_cannot_be_trained_is_refused(
    lines: list[str], size: int, min_frequency: int, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        train_bpe(lines, size, min_frequency)


def test_a_small_corpus_gives_fewer_entries_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    vocab, _ = train_bpe(["ab ab ab"], 500)
    assert len(vocab) < 500
    assert "too small for 500 entries" in caplog.text


# --- ids ------------------------------------------------------------------------------------------


def test_ids_equal_transformers_on_real_text(trained: Tokenizer, peer: Any, real_text: list[str]) -> None:
    expected = peer(real_text, add_special_tokens=False)["input_ids"]
    assert trained.encode_batch(real_text) == expected
    assert sum(map(len, expected)) > 50_000
    assert trained.unk_id not in {id for ids in expected for id in ids}


def test_ids_equal_transformers_on_random_unicode(trained: Tokenizer, peer: Any) -> None:
    characters = st.characters(exclude_categories=("Cs",))
    mixed = st.lists(
        st.one_of(
            st.text(characters, max_size=6),
            st.sampled_from(["the ", "  ", "\n", "'s", " é", "İ", "中文", "한국"]),
        ),
        max_size=12,
    ).map("".join)

    @settings(max_examples=300, deadline=None)
    @given(st.lists(st.one_of(st.text(characters, max_size=60), mixed), min_size=1, max_size=8))
    def check(texts: list[str]) -> None:
        texts = [text for text in texts if not any(token in text for token in SPECIALS.all)]
        assert [trained.encode(text) for text in texts] == [
            peer(text, add_special_tokens=False)["input_ids"] for text in texts
        ]
        assert [trained.decode(trained.encode(text)) for text in texts] == texts

    check()


def test_a_saved_tokenizer_is_the_same_in_transformers(
    trained: Tokenizer, saved: Path, real_text: list[str]
) -> None:
    theirs = AutoTokenizer.from_pretrained(saved)
    for line in real_text[::20]:
        assert theirs(line)["input_ids"] == [trained.cls_id, *trained.encode(line), trained.sep_id]
    pair = theirs("one", "two three")["input_ids"]
    assert pair == [0, *trained.encode("one"), 2, 2, *trained.encode("two three"), 2]
    for text in ("<mask> is", "Paris is the <mask> of France.", "un<mask>able, <mask><mask>!", " a  <mask> "):
        assert trained.encode_with_masks(text) == theirs(text, add_special_tokens=False)["input_ids"]


def test_it_loads_from_every_form_of_its_files(trained: Tokenizer, saved: Path, tmp_path: Path) -> None:
    for path in (saved, saved / "vocab.json", saved / "tokenizer.json"):
        assert Tokenizer.load(path).identity() == trained.identity()
    for name in ("tokenizer.json", "tokenizer_config.json"):  # as transformers 5 saves it
        (tmp_path / name).write_bytes((saved / name).read_bytes())
    assert Tokenizer.load(tmp_path).identity() == trained.identity()
    AutoTokenizer.from_pretrained(saved).save_pretrained(tmp_path / "theirs")
    assert Tokenizer.load(tmp_path / "theirs").identity() == trained.identity()


def test_the_prefix_space_is_stored_and_does_what_it_does_in_transformers(
    trained: Tokenizer, tmp_path: Path
) -> None:
    assert isinstance(trained.config, BpeConfig)
    spaced = Tokenizer(trained.vocab, BpeConfig(trained.config.merges, prefix_space=True))
    spaced.save(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "roberta"}')
    again = Tokenizer.load(tmp_path)
    assert again.identity() == spaced.identity() != trained.identity()
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    for text in ("the dog", " the dog", "中国", "x <mask>, the"):
        assert again.encode_with_masks(text) == theirs(text, add_special_tokens=False)["input_ids"]
    assert again.encode("the dog") == trained.encode(" the dog")


# --- special tokens -------------------------------------------------------------------------------


@pytest.mark.parametrize("token", [*SPECIALS.all, *SPECIAL_TOKENS])
def test_literal_special_tokens_in_text_are_text(token: str, trained: Tokenizer) -> None:
    for text in (f"a {token} a", f"a{token}a", token):
        ids, _ = trained.encode_with_offsets(text)
        assert ids == trained.encode(text) == trained.encode_batch([text])[0]
        assert not set(ids) & trained.special_ids
        assert trained.decode(ids) == text


def test_both_marks_are_masks_where_they_are_asked_for(trained: Tokenizer) -> None:
    ids = trained.encode_with_masks("Paris is the <mask>, said [MASK].")
    assert ids.count(trained.mask_id) == 2
    assert ids == trained.encode_with_masks("Paris is the [MASK], said <mask>.")
    assert trained.encode_with_masks("the dog") == trained.encode("the dog")


@pytest.mark.parametrize("token", SPECIALS.all)
def test_a_missing_special_token_is_named(token: str, trained: Tokenizer) -> None:
    with pytest.raises(InputError, match=f"here: the special token {token} is missing"):
        Tokenizer([other for other in trained.vocab if other != token], trained.config, where="here")


# --- words ----------------------------------------------------------------------------------------


def test_pieces_inside_words_have_no_space_and_are_no_punctuation(small: Tokenizer) -> None:
    inside = dict(zip(map(small.shown, range(small.vocab_size)), small.continuation.tolist(), strict=True))
    for piece in (" the", " ", "\n", ".", "(", "'", "<mask>", "<s>"):
        assert not inside[piece], piece
    for piece in ("o", "x", "4", "d"):
        assert inside[piece], piece
    # Parts of a character: bytes that are no text by themselves.
    tail = small.encode("é")[-1] if len(small.encode("é")) > 1 else small.encode("ŝ")[-1]
    assert small.continuation[tail]


def test_words_begin_where_the_text_has_spaces_or_punctuation(trained: Tokenizer) -> None:
    text = " The foxes, jumping unbelievably (42 times)"
    ids = trained.encode(text)
    starts = [
        trained.shown(id) for id, inside in zip(ids, trained.continuation[ids], strict=True) if not inside
    ]
    assert [start.strip()[:1] for start in starts] == ["T", "f", ",", "j", "u", "(", "t", ")"]


def test_offsets_point_at_the_pieces_without_their_space(trained: Tokenizer) -> None:
    text = "the dog, the 中国 naïve fox"
    ids, offsets = trained.encode_with_offsets(text)
    assert ids == trained.encode(text)
    for id, (start, end) in zip(ids, offsets, strict=True):
        shown = trained.shown(id).lstrip()
        if "\ufffd" not in shown:
            assert text[start:end] == shown
        assert 0 <= start <= end <= len(text)


def test_a_documents_sentences_have_the_ids_of_the_document(trained: Tokenizer) -> None:
    sentences = ["The dog jumps.", "It is the dog's day.", "北京是中国的首都。", "我们都知道。", "Yes."]
    joined = "The dog jumps. It is the dog's day.北京是中国的首都。我们都知道。Yes."
    encoded = [id for sentence in trained.in_document(sentences) for id in trained.encode(sentence)]
    assert encoded == trained.encode(joined)


def test_filling_joins_pieces_as_they_are(small: Tokenizer) -> None:
    the, o = (
        next(id for id in range(small.vocab_size) if small.shown(id) == piece) for piece in (" the", "o")
    )
    assert small.filled("over <mask> dog", [the]) == "over the dog"
    assert small.filled("[MASK] dog", [the]) == "the dog"
    assert small.filled("over <mask> dog", [o]) == "overo dog"
    assert small.filled("a <mask>[MASK].", [the, o]) == "a theo."


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\ud83d x"])
def test_lone_surrogates_do_not_crash(text: str, small: Tokenizer) -> None:
    clean = "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)
    assert small.encode(text) == small.encode(clean)


def test_the_identity_depends_on_merges_and_kind(small: Tokenizer) -> None:
    assert isinstance(small.config, BpeConfig)
    fewer = Tokenizer(small.vocab, BpeConfig(small.config.merges[:-1]))
    words = Tokenizer([*small.vocab, *SPECIAL_TOKENS], TokenizerConfig())
    assert len({small.identity(), fewer.identity(), words.identity()}) == 3


# --- files that are broken ------------------------------------------------------------------------


def broken(directory: Path, small: Tokenizer, name: str, content: str | None) -> Path:
    small.save(directory)
    for other in ("tokenizer.json", "tokenizer_config.json"):
        (directory / other).unlink()
    if content is None:
        (directory / name).unlink()
    else:
        (directory / name).write_text(content)
    return directory


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("merges.txt", None, r"merges\.txt: cannot be read"),
        ("merges.txt", "#version: 0.2\na b c\n", "'a b c' is no pair"),
        ("merges.txt", "#version: 0.2\nqqq zzz\n", "do not belong together"),
        ("vocab.json", "{", r"vocab\.json: broken"),
        ("vocab.json", "[1]", "ids of the pieces"),
        ("vocab.json", '{"a": 0, "b": 2}', "ids of the pieces"),
        ("vocab.txt", "a\n", r"holds vocab\.txt and vocab\.json"),
        ("tokenizer_config.json", '{"add_prefix_space": "yes"}', "add_prefix_space is 'yes'"),
    ],
)
def test_broken_files_are_named(
    name: str, content: str | None, message: str, small: Tokenizer, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        Tokenizer.load(broken(tmp_path / "bpe", small, name, content))


_BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


@pytest.mark.parametrize("vocabulary", ["vocab.json", "tokenizer.json"])
@pytest.mark.parametrize(
    "rules",
    [
        {"normalizer": {"type": "NFKC"}},
        {"pre_tokenizer": _BYTES | {"use_regex": False}},
        {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits"}, _BYTES]}},
    ],
)
def test_rules_other_than_robertas_are_refused(
    rules: dict[str, Any], vocabulary: str, small: Tokenizer, tmp_path: Path
) -> None:
    small.save(tmp_path)
    path = tmp_path / "tokenizer.json"
    engine = json.loads(path.read_text())
    path.write_text(json.dumps(engine | {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [_BYTES]}}))
    assert Tokenizer.load(tmp_path / vocabulary).identity() == small.identity()
    path.write_text(json.dumps(engine | rules))
    with pytest.raises(InputError, match=r"tokenizer\.json: normalises or splits text otherwise"):
        Tokenizer.load(tmp_path / vocabulary)


def test_a_bpe_that_is_not_byte_level_is_refused(tmp_path: Path) -> None:
    engine = {
        "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []},
        "pre_tokenizer": {"type": "Metaspace"},
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(engine))
    with pytest.raises(InputError, match="no byte-level BPE vocabulary"):
        Tokenizer.load(tmp_path)
