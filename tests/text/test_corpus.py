from __future__ import annotations

import gzip
import io
import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import zstandard

from bertsmith.errors import InputError
from bertsmith.text import corpus, streams
from bertsmith.text.config import CorpusConfig, TokenizerConfig
from bertsmith.text.corpus import CorpusCounts, read_documents
from bertsmith.text.vocabulary import train_vocabulary

ALL_LINES = CorpusConfig(prose_only=False)


def read(*paths: Path | str, config: CorpusConfig = ALL_LINES) -> tuple[list[list[str]], CorpusCounts]:
    counts = CorpusCounts()
    return list(read_documents([str(path) for path in paths], config, counts)), counts


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


# --- documents --------------------------------------------------------------------------------------

TEXT = "One one.\nOne two.\n\n\n \nTwo one.\n\nThree one.\nThree two.\nThree three."
DOCUMENTS = [["One one.", "One two."], ["Two one."], ["Three one.", "Three two.", "Three three."]]


def test_blank_lines_separate_documents(tmp_path: Path) -> None:
    documents, counts = read(write(tmp_path / "a.txt", TEXT))
    assert documents == DOCUMENTS
    assert (counts.files, counts.documents, counts.lines) == (1, 3, 6)
    assert counts.characters == sum(len(line) for document in DOCUMENTS for line in document)


def test_a_listener_is_told_of_every_line_before_its_document(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"\xef\xbb\xbfOne one.\r\n\nTwo\x00 one.\nTwo\xff two.\n")
    told: list[tuple[Path, int, str, int, int]] = []
    counts = CorpusCounts()

    def listen(file: Path, number: int, line: str) -> None:
        told.append((file, number, line, counts.nul_characters, counts.invalid_utf8_lines))

    for document in read_documents([path], ALL_LINES, counts, listen):
        assert told[-1][2] in ("", document[-1])
    assert told == [
        (path, 1, "One one.", 0, 0),
        (path, 2, "", 0, 0),
        (path, 3, "Two one.", 1, 0),
        (path, 4, "Two two.", 1, 1),
    ]


def test_each_line_can_be_a_document(tmp_path: Path) -> None:
    documents, counts = read(
        write(tmp_path / "a.txt", TEXT), config=CorpusConfig(documents="line", prose_only=False)
    )
    assert documents == [[line] for document in DOCUMENTS for line in document]
    assert counts.documents == 6


def test_the_end_of_a_file_ends_a_document(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "Last line of a.")
    write(tmp_path / "b.txt", "First line of b.\n")
    assert read(tmp_path)[0] == [["Last line of a."], ["First line of b."]]


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
@pytest.mark.parametrize("kind", [".txt", ".jsonl"])
def test_every_format_gives_the_same_documents(kind: str, suffix: str, tmp_path: Path) -> None:
    records = ({"id": place, "text": "\n".join(document)} for place, document in enumerate(DOCUMENTS))
    text = TEXT if kind == ".txt" else "".join(json.dumps(record) + "\n" for record in records)
    pack = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}[suffix]
    assert read(write(tmp_path / f"corpus{kind}{suffix}", pack(text.encode())))[0] == DOCUMENTS


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.ZstdCompressor().compress])
def test_several_members_in_a_compressed_file_are_all_read(pack: Any, tmp_path: Path) -> None:
    suffix = ".gz" if pack is gzip.compress else ".zst"
    path = write(
        tmp_path / f"a.txt{suffix}",
        pack(b"First.\n\nSec") + pack(b"ond.\n") + pack(b"") + pack(b"\nThird.\n"),
    )
    assert read(path)[0] == [["First."], ["Second."], ["Third."]]


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    assert read("-")[0] == DOCUMENTS


def test_lines_across_blocks_are_whole(tmp_path: Path) -> None:
    lines = [f"{number} " + "é" * (number * 7919 % 300_000) + "." for number in range(40)]
    assert read(write(tmp_path / "a.txt", "\n".join(lines)))[0] == [lines]


def test_the_text_field_of_jsonl_can_be_named(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.jsonl", '{"body": "Here."}\n\n{"body": ""}\n{"body": "There.\\r\\nAnd here."}\n'
    )
    documents, counts = read(path, config=CorpusConfig(text_field="body", prose_only=False))
    assert documents == [["Here."], ["There.", "And here."]]
    assert counts.empty_documents == 1


# --- files ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("a.txt.gz", gzip.compress(b"text " * 10_000, mtime=0)[:-20], "cut off"),
        ("a.txt.gz", gzip.compress(b"text\n" * 10_000, mtime=0)[:30], "cut off"),
        ("a.txt.gz", b"no gzip at all", "broken gzip"),
        ("a.txt.gz", b"", "empty"),
        ("a.txt.gz", gzip.compress(b"text", mtime=0) + b"trailing", "broken gzip"),
        ("a.txt.zst", zstandard.ZstdCompressor().compress(bytes(range(256)) * 999)[:-3], "cut off"),
        ("a.txt.zst", b"no zstandard at all", "broken zstandard"),
        ("a.txt.zst", b"", "cut off or empty"),
        ("a.txt", "Text in UTF-16.\n".encode("utf-16"), "UTF-16"),
        ("a.jsonl", '{"text": "good"}\nnot json\n', "line 2: not JSON"),
        ("a.jsonl", '{"text": "good"}\n{"body": "x"}\n', "line 2: no text in the field 'text'"),
        ("a.jsonl", '{"text": "good"}\n\n{"text": null}\n', "line 3: no text in the field 'text'"),
        ("a.jsonl", '["text"]\n', "line 1: no text in the field 'text'"),
        ("a.jsonl", '{"text": "cut', "line 1: not JSON"),
        ("a.jsonl", "[" * 100_000 + "\n", "line 1: not JSON"),
    ],
)
def test_broken_files_are_input_errors_that_name_the_place(
    name: str, content: str | bytes, message: str, tmp_path: Path
) -> None:
    path = write(tmp_path / name, content)
    with pytest.raises(InputError, match=message) as caught:
        read(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_line_without_end_is_refused_before_it_fills_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "_LONGEST_LINE_BYTES", 2 << 20)
    with pytest.raises(InputError, match=r"a\.txt: a line is longer than 2 MiB"):
        read(write(tmp_path / "a.txt", "word " * 800_000))


def test_zst_without_its_package_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(InputError, match=r"pip install 'bertsmith\[zstd\]'"):
        read(write(tmp_path / "a.txt.zst", b"x"))


@pytest.mark.parametrize("name", ["documents", "sentences", "invalid_utf8"])
def test_wrong_settings_are_refused_at_once(name: str) -> None:
    with pytest.raises(InputError, match=f"text.{name} is 'page'; it has to be .* or "):
        CorpusConfig(**{name: "page"})


@pytest.mark.parametrize(
    "start, advice",
    [
        (gzip.compress(b"text", mtime=0), r"let its name end in \.gz"),
        (b"\x28\xb5\x2f\xfdrest", r"let its name end in \.zst"),
        (b"PK\x03\x04rest", "zip archive"),
        (b"%PDF-1.7\n", "PDF"),
        (b"\x7fELFrest", "program"),
    ],
)
def test_other_formats_under_a_text_name_are_refused(start: bytes, advice: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"a\.txt: .*{advice}"):
        read(write(tmp_path / "a.txt", start))


# --- bytes and characters ---------------------------------------------------------------------------

C012 = b"first line here\nbad \xd0 byte\nnul \x00 char\nlast line here\n"


def test_c012_an_invalid_byte_or_nul_never_ends_the_text(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", C012 + "mark \ufffd here\n".encode())
    documents, counts = read(path)
    assert documents == [["first line here", "bad  byte", "nul  char", "last line here", "mark  here"]]
    assert counts.lines == 5
    assert (counts.invalid_utf8_lines, counts.nul_characters, counts.replacement_characters) == (1, 1, 1)
    assert any("1 line with invalid UTF-8" in warning for warning in counts.warnings())
    vocab = train_vocabulary((line for line in documents[0]), 200, TokenizerConfig(), min_frequency=1)
    assert "last" in vocab
    assert counts.to_dict()["invalid_utf8_lines"] == 1


def test_c012_invalid_utf8_can_be_refused_with_file_and_line(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", C012)
    with pytest.raises(InputError, match=r"a\.txt, line 2: invalid UTF-8"):
        read(path, config=CorpusConfig(invalid_utf8="error", prose_only=False))


@pytest.mark.parametrize(
    "bad", [b"\xd0", b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xe4\xb8", b"\x80" * 9]
)
def test_c012_the_text_around_every_kind_of_bad_bytes_is_kept(bad: bytes, tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"before " + bad + b" after.\nNext " + bad + b"\n" + bad + b" last.")
    documents, counts = read(path)
    assert [line.split() for line in documents[0]] == [["before", "after."], ["Next"], ["last."]]
    assert counts.invalid_utf8_lines == 3


def test_c009_a_bom_and_crlf_are_no_text(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"\xef\xbb\xbfOne.\r\nTwo.\r\n\r\nThree.\r\n")
    documents, counts = read(path)
    assert documents == [["One.", "Two."], ["Three."]]
    assert (counts.bom_files, counts.crlf_files) == (1, 1)
    record = write(tmp_path / "b.jsonl", b'\xef\xbb\xbf{"text": "One."}\r\n{"text": "Two."}\r\n')
    assert read(record)[0] == [["One."], ["Two."]]
    assert read(write(tmp_path / "c.txt", "One.\n\ufeff\nTwo.\n"))[0] == [["One."], ["Two."]]


FOREIGN_LINE_ENDS = "\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"


@pytest.mark.parametrize("character", FOREIGN_LINE_ENDS)
@pytest.mark.parametrize("kind", [".txt", ".jsonl"])
def test_only_lf_and_crlf_end_a_line(character: str, kind: str, tmp_path: Path) -> None:
    text = f"One{character}two{character}{character}three.\nFour."
    content = text if kind == ".txt" else json.dumps({"text": text}, ensure_ascii=False) + "\n"
    documents, counts = read(write(tmp_path / f"a{kind}", content))
    assert documents == [["One two  three.", "Four."]]
    assert counts.lines == 2
    assert any("read as spaces" in warning for warning in counts.warnings())


def test_lone_surrogates_of_json_are_removed(tmp_path: Path) -> None:
    documents, counts = read(write(tmp_path / "a.jsonl", '{"text": "a \\ud83d b \\ud83d\\ude00."}\n'))
    assert documents == [["a  b 😀."]]
    assert counts.surrogate_characters == 1
    documents[0][0].encode()


# --- counts -----------------------------------------------------------------------------------------


def test_c026_the_share_of_repeated_lines_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = [f"This is line number {number}." for number in range(100)] + ["The same line again."] * 900
    _, counts = read(write(tmp_path / "a.txt", "\n".join(lines)))
    assert counts.repeated_lines == 899
    with caplog.at_level(logging.WARNING):
        counts.log_warnings()
    assert "90% of the lines repeat an earlier line" in caplog.text
    assert counts.to_dict()["repeated_lines_share"] == 0.899


def test_an_ordinary_corpus_gives_no_warning(shared_data: Path) -> None:
    _, counts = read(shared_data / "corpus" / "wiki-en" / "heldout.txt.gz")
    assert counts.warnings() == []
    assert (counts.documents, counts.lines) == (74, 1764)


def test_counts_of_parts_add_up(tmp_path: Path) -> None:
    lines = [f"A sentence with number {number % 7}." for number in range(30)] + ["- item", "* * *", "\x00b."]
    whole = write(tmp_path / "whole.txt", "\n".join(lines))
    parts = [write(tmp_path / f"part{k}.txt", "\n".join(lines[k::3])) for k in range(3)]
    config = CorpusConfig()
    total = CorpusCounts()
    for part in parts:
        total.add(read(part, config=config)[1])
    expected = read(whole, config=config)[1]
    assert total.to_dict() | {"files": 1, "documents": 1} == expected.to_dict()
    assert expected.repeated_lines == 23
    assert expected.dropped_lines == {"few letters": 1, "list": 1}
    json.dumps(expected.to_dict())


def test_remembered_lines_are_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(corpus, "_MOST_LINE_HASHES", 10)
    path = write(tmp_path / "a.txt", "\n".join(f"Line {number % 20}." for number in range(60)))
    _, counts = read(path)
    assert len(counts.line_hashes) == 10
    assert counts.repeated_lines == 20, "of the ten remembered lines"
    counts.add(read(path)[1])
    assert len(counts.line_hashes) == 10


def test_the_prose_filter_is_switchable_and_counted(tmp_path: Path) -> None:
    text = "A header\n\nThis is a sentence.\n• an item\nName | Age | City\n1 2 3 4\nAnother sentence.\n"
    path = write(tmp_path / "a.txt", text)
    documents, counts = read(path, config=CorpusConfig())
    assert documents == [["This is a sentence.", "Another sentence."]]
    assert counts.dropped_lines == {"header": 1, "list": 1, "table": 1, "many digits": 1}
    assert (counts.lines, counts.documents, counts.empty_documents) == (6, 1, 1)
    assert sum(map(len, read(path)[0])) == 6


_STREAMS = """
import resource, sys
from bertsmith.text.config import CorpusConfig
from bertsmith.text.corpus import CorpusCounts, read_documents
counts = CorpusCounts()
for _ in read_documents([sys.argv[1]], CorpusConfig(), counts):
    pass
print(counts.documents, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def test_memory_does_not_grow_with_the_corpus(tmp_path: Path) -> None:
    """Fifty MB of documents that are alike: nothing of them is kept."""
    document = "This is a sentence that stands in many documents of this corpus.\n" * 40 + "\n"
    peaks = {}
    for repeats in (50, 20_000):
        path = tmp_path / f"{repeats}.txt.gz"
        with gzip.open(path, "wb", compresslevel=1) as file:
            for _ in range(repeats // 50):
                file.write(document.encode() * 50)
        done = subprocess.run(
            [sys.executable, "-c", _STREAMS, str(path)],
            capture_output=True,
            text=True,
            timeout=200,
            check=True,
        )
        documents, peak = map(int, done.stdout.split())
        assert documents == repeats
        peaks[repeats] = peak
    assert peaks[20_000] < peaks[50] + 16, f"MiB: {peaks}"
