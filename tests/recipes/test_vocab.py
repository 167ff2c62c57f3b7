from __future__ import annotations

import gzip
import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from transformers import AutoTokenizer

from bertsmith import progress
from bertsmith.config import overlay
from bertsmith.errors import InputError
from bertsmith.recipes.config import VocabConfig
from bertsmith.recipes.vocab import vocab
from bertsmith.text.config import CorpusConfig, TokenizerConfig
from bertsmith.text.tokenizer import SPECIAL_TOKENS, Tokenizer

TEXT = "".join(
    f"The {first} {second} saw a {first} in Paris, and it ran away {third}.\n"
    for first in ("quick", "lazy", "young", "brown")
    for second in ("fox", "dog", "wolf", "lion")
    for third in ("quickly", "slowly", "sadly", "loudly")
)


def write(path: Path, content: str | bytes) -> str:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def test_it_writes_the_vocabulary_and_its_settings_side_by_side(tmp_path: Path) -> None:
    out = tmp_path / "new" / "vocab.txt"
    summary = vocab(VocabConfig(corpus=[write(tmp_path / "a.txt", TEXT)], out=str(out), size=120))
    assert sorted(path.name for path in out.parent.iterdir()) == [
        *("tokenizer.json", "tokenizer_config.json", "vocab.config.yaml", "vocab.txt"),
    ]
    assert overlay(
        VocabConfig([], ""), yaml.safe_load((out.parent / "vocab.config.yaml").read_text()), ""
    ) == (VocabConfig(corpus=[str(tmp_path / "a.txt")], out=str(out), size=120))
    lines = out.read_text(encoding="utf-8").split("\n")
    assert tuple(lines[:5]) == SPECIAL_TOKENS
    assert len(lines) - 1 == summary["size"] <= 120
    assert summary["cased"] is False
    assert summary["unknown_share"] == 0
    assert summary["corpus"]["lines"] == 64
    assert summary["characters"] == len(TEXT) - 64
    json.dumps(summary)
    tokenizer = Tokenizer.load(out)
    assert tokenizer.identity() == summary["identity"]
    (out.parent / "config.json").write_text('{"model_type": "bert"}')
    theirs = AutoTokenizer.from_pretrained(out.parent)
    text = "The quick fox ran to Paris."
    assert theirs(text, add_special_tokens=False)["input_ids"] == tokenizer.encode(text)


def test_cased_keeps_capitals_and_says_so_beside_the_file(tmp_path: Path) -> None:
    out = tmp_path / "cased.txt"
    summary = vocab(VocabConfig([write(tmp_path / "a.txt", TEXT)], str(out), size=120, cased=True))
    assert summary["cased"] is True
    tokenizer = Tokenizer.load(out)
    assert tokenizer.config.lowercase is False
    assert tokenizer.encode("Paris") == [tokenizer.id("Paris")]
    assert tokenizer.id("Paris") != tokenizer.unk_id
    assert json.loads((tmp_path / "tokenizer_config.json").read_text())["do_lower_case"] is False


def test_the_settings_of_the_tokenizer_are_stored(tmp_path: Path) -> None:
    settings = TokenizerConfig(strip_accents=False, split_chinese=False, max_word_characters=50)
    out = tmp_path / "vocab.txt"
    vocab(VocabConfig([write(tmp_path / "a.txt", TEXT)], str(out), size=120, tokenizer=settings))
    assert Tokenizer.load(tmp_path).config == settings


def test_twice_gives_the_same_files(tmp_path: Path) -> None:
    corpus = write(tmp_path / "a.txt", TEXT)
    contents = []
    for name in ("one", "two"):
        vocab(VocabConfig([corpus], str(tmp_path / name / "vocab.txt"), size=120))
        files = (tmp_path / name).iterdir()
        contents.append({path.name: path.read_bytes() for path in files if path.suffix != ".yaml"})
    assert contents[0] == contents[1]


@pytest.mark.parametrize("name", ["vocab", "vocab.json", "."])
def test_an_output_that_is_no_txt_is_an_input_error(name: str, tmp_path: Path) -> None:
    corpus = write(tmp_path / "a.txt", TEXT)
    with pytest.raises(InputError, match=r"ends in \.txt"):
        vocab(VocabConfig([corpus], str(tmp_path / name)))


def test_c012_all_lines_are_read_and_the_odd_ones_are_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    corpus = write(tmp_path / "a.txt", b"first line here\nbad \xd0 byte\nnul \x00 char\nlast line here\n" * 3)
    config = VocabConfig([corpus], str(tmp_path / "vocab.txt"), size=100, text=CorpusConfig(prose_only=False))
    with caplog.at_level(logging.WARNING):
        summary = vocab(config)
    assert summary["corpus"]["lines"] == 12
    assert "last" in (tmp_path / "vocab.txt").read_text().split("\n")
    assert "3 lines with invalid UTF-8" in caplog.text
    assert "too small for 100 entries" in caplog.text


def test_c026_repeated_lines_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    corpus = write(tmp_path / "a.txt", TEXT + "The very same line.\n" * 576)
    with caplog.at_level(logging.WARNING):
        summary = vocab(VocabConfig([corpus], str(tmp_path / "vocab.txt"), size=100))
    assert summary["corpus"]["repeated_lines"] == 575
    assert "90% of the lines repeat an earlier line" in caplog.text


def test_characters_beyond_the_alphabet_are_reported_as_unknown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    corpus = write(tmp_path / "a.txt", TEXT)
    with caplog.at_level(logging.WARNING):
        summary = vocab(VocabConfig([corpus], str(tmp_path / "vocab.txt"), size=60, limit_alphabet=10))
    assert summary["unknown_share"] > 0.1
    assert "raise limit_alphabet (now 10)" in caplog.text


def test_a_failed_run_leaves_nothing_behind(tmp_path: Path) -> None:
    corpus = write(tmp_path / "a.txt.gz", gzip.compress(TEXT.encode())[:-9])
    with pytest.raises(InputError, match="cut off"):
        vocab(VocabConfig([corpus], str(tmp_path / "out" / "vocab.txt"), size=100))
    assert not (tmp_path / "out").exists()


def test_chinese_text_is_covered(shared_data: Path, tmp_path: Path) -> None:
    corpus = str(shared_data / "corpus" / "zh" / "heldout.txt.gz")
    summary = vocab(VocabConfig([corpus], str(tmp_path / "vocab.txt"), size=4000, limit_alphabet=3500))
    assert summary["size"] > 2000
    assert summary["unknown_share"] < 0.005


def test_reading_shows_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_PLAIN_SECONDS", 0.0)
    corpus = [write(tmp_path / f"{name}.txt", TEXT) for name in "ab"]
    vocab(VocabConfig(corpus, str(tmp_path / "vocab.txt"), size=120, text=CorpusConfig(documents="line")))
    shown = capsys.readouterr()
    assert shown.out == ""
    lines = [line for line in shown.err.splitlines() if line.startswith("vocab: read")]
    assert len(lines) == 128
    assert lines[0].startswith("vocab: read  50%")  # a file is read by the block, and these are one each
    assert " left" in lines[0]
    assert lines[-1].startswith("vocab: read 100%")
    assert "million/s" in lines[-1]


# --- byte-level BPE -------------------------------------------------------------------------------


def test_bpe_writes_robertas_files(tmp_path: Path) -> None:
    out = tmp_path / "new" / "vocab.json"
    corpus = write(tmp_path / "a.txt", TEXT)
    summary = vocab(VocabConfig([corpus], str(out), algorithm="bpe", size=320))
    assert sorted(path.name for path in out.parent.iterdir()) == [
        *("merges.txt", "tokenizer.json", "tokenizer_config.json", "vocab.config.yaml", "vocab.json"),
    ]
    assert (summary["algorithm"], summary["size"], summary["cased"]) == ("bpe", 320, True)
    assert summary["unknown_share"] == 0
    assert Tokenizer.load(out.parent).identity() == Tokenizer.load(out).identity() == summary["identity"]
    again = vocab(VocabConfig([corpus], str(tmp_path / "again" / "vocab.json"), algorithm="bpe", size=320))
    assert again["identity"] == summary["identity"]


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"out": "vocab.txt"}, r"has to be named vocab\.json"),
        ({"algorithm": "unigram"}, "take wordpiece or bpe"),
        ({"limit_alphabet": 100}, "limit-alphabet is set, but bpe has no use for it"),
        ({"tokenizer": TokenizerConfig(lowercase=False)}, "tokenizer is set, but bpe has no use for it"),
    ],
)
def test_bpe_refuses_what_it_would_not_read(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    config = VocabConfig(
        [write(tmp_path / "a.txt", TEXT)], str(tmp_path / "vocab.json"), algorithm="bpe", size=320
    )
    if "out" in changes:
        changes = {"out": str(tmp_path / changes["out"])}
    with pytest.raises(InputError, match=message):
        vocab(replace(config, **changes))
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize("first, second", [("vocab.txt", "vocab.json"), ("vocab.json", "vocab.txt")])
def test_two_kinds_do_not_share_a_directory(first: str, second: str, tmp_path: Path) -> None:
    corpus = write(tmp_path / "a.txt", TEXT)
    kinds = {"vocab.txt": "wordpiece", "vocab.json": "bpe"}
    vocab(VocabConfig([corpus], str(tmp_path / "v" / first), algorithm=kinds[first], size=320))
    with pytest.raises(InputError, match=f"{first} is of another kind"):
        vocab(VocabConfig([corpus], str(tmp_path / "v" / second), algorithm=kinds[second], size=320))


def test_a_models_vocabulary_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    out = tmp_path / "vocab.txt"
    with pytest.raises(InputError, match="holds a model, which another vocabulary would break"):
        vocab(VocabConfig([write(tmp_path / "a.txt", TEXT)], str(out), size=320))
    assert not out.exists()


# --- extension ------------------------------------------------------------------------------------


def test_an_extended_vocabulary_keeps_the_ids_and_needs_fewer_pieces(
    minilm_path: Path, tmp_path: Path
) -> None:
    terms = ("electroencephalography", "cardiomyopathy", "immunohistochemistry", "nanoparticle")
    text = "".join(
        f"The {first} was read beside the {second} of {number}.\n"
        for first in terms
        for second in terms
        for number in ("one", "two", "three")
    )
    out = tmp_path / "longer" / "vocab.txt"
    summary = vocab(
        VocabConfig([write(tmp_path / "a.txt", text)], str(out), extend=str(minilm_path), size=30530)
    )
    old, new = Tokenizer.load(minilm_path), Tokenizer.load(out)
    assert new.vocab[: old.vocab_size] == old.vocab
    assert new.vocab_size == summary["size"] <= 30530
    assert set(terms) <= set(new.vocab[old.vocab_size :])
    assert (new.config, new.max_length) == (old.config, old.max_length)
    assert summary["pieces_per_word"] < summary["pieces_per_word_before"]
    assert new.encode("the usual words") == old.encode("the usual words")


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"size": 30522}, "size is 30522, but the model's vocabulary has 30522 entries"),
        ({"cased": True}, "cased is set, but an extended vocabulary keeps the model's"),
        ({"tokenizer": TokenizerConfig(lowercase=False)}, "tokenizer is set, but an extended"),
        ({"limit_alphabet": 9}, "limit-alphabet is set, but an extended"),
        ({"extend": "nowhere"}, "nowhere: no such vocabulary"),
    ],
)
def test_an_extension_refuses_what_it_would_not_read(
    changes: dict[str, Any], message: str, minilm_path: Path, tmp_path: Path
) -> None:
    config = VocabConfig(
        [write(tmp_path / "a.txt", TEXT)], str(tmp_path / "vocab.txt"), extend=str(minilm_path), size=30530
    )
    with pytest.raises(InputError, match=message):
        vocab(replace(config, **changes))
