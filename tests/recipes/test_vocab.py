from __future__ import annotations

import gzip
import json
import logging
from pathlib import Path

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
    assert "left" not in lines[0]  # nobody knows before the first file is done
    assert lines[-1].startswith("vocab: read  50%")
    assert "million/s" in lines[-1]
