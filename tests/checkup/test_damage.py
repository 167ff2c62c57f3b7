"""Each kind of damage in a real damaged file, with its place; and text that is only unusual."""

from __future__ import annotations

from pathlib import Path

import pytest

from bertsmith.checkup.limits import LIMITS
from bertsmith.text.config import CorpusConfig
from tests.checkup.texts import findings, prose

LINES = [line for document in prose(30, 4) for line in document]
FRENCH = (
    "Il était une fois un élève très doué qui préférait les étés à la forêt, où il rêvait près d'un chêne."
)


def damaged(path: Path, line: str | bytes, place: int = 7) -> str:
    """Write a corpus in which one line is replaced; the line's number is ``place``."""
    lines = [text.encode() for text in LINES]
    lines[place - 1] = line.encode() if isinstance(line, str) else line
    half = len(lines) // 2
    path.write_bytes(b"\n".join([*lines[:half], b"", *lines[half:]]) + b"\n")
    return str(path)


@pytest.mark.parametrize(
    "name, line, words",
    [
        ("invalid_utf8", FRENCH.encode("latin-1"), "bytes that are no UTF-8 in 1 line;"),
        (
            "replacement_characters",
            "The caf\ufffd was open and the na\ufffdve waiter slept.",
            "2 times U+FFFD in 1 line",
        ),
        (
            "foreign_line_ends",
            "First line of it.\rSecond line of it.\u2028Third.",
            "2 times a lone CR, U+2028 or the like in 1 line",
        ),
        ("control_characters", "The waiter\x00 slept in the old garden chair.", "1 times NUL in 1 line"),
        (
            "control_characters",
            "The wai\u00adter sle\u200bpt in the old garden chair.",
            "characters that nobody sees",
        ),
        ("mojibake", FRENCH.encode().decode("cp1252"), "decoded wrongly once"),
        ("mojibake", "The waiter’s “chair” was old.".encode().decode("cp1252", "ignore"), "in 1 line"),
        ("markup", "The waiter&nbsp;slept in <b>the</b> old garden chair.", "markup"),
        ("markup", "The [[waiter]] slept in the {{old}} garden chair.", "markup"),
        ("special_tokens", "The [MASK] slept in the old garden chair.", "a special token as text"),
        ("special_tokens", "The <unk> slept in the old garden chair.", "a special token as text"),
    ],
)
def test_damage_is_found_at_its_place(name: str, line: str | bytes, words: str, tmp_path: Path) -> None:
    path = damaged(tmp_path / "a.txt", line)
    found = findings(corpus=[path])
    assert found[name]["count"] == 1
    assert words in found[name]["what"]
    assert [example["place"] for example in found[name]["examples"]] == [f"{path}:7"]
    assert found[name]["level"] == LIMITS[name].level(found[name]["share"])
    share = 2 / 122 if name == "foreign_line_ends" else 1 / 120  # 120 lines, 120 line ends and two others
    assert found[name]["share"] == pytest.approx(share, abs=1e-6)


@pytest.mark.parametrize(
    "line",
    [
        FRENCH,
        "“Naïve façade,” said Zoë — “déjà vu…” and paid £5 or 4 €.",
        "Er hieß Jürgen, wohnte in Köln und aß gern Äpfel für 3 €.",
        "尖山，是台湾苗栗县公馆乡的一个传统地域名称，位于该乡中部至北部中央地带。",
        "Profit & loss at AT&T; see [the notes] & c. if 3 < 4 and 5 > 2.",
    ],
)
def test_unusual_text_is_no_damage(line: str, tmp_path: Path) -> None:
    found = findings(corpus=[damaged(tmp_path / "a.txt", line)])
    assert set(found) <= {"little_text", "languages"}


def test_a_file_in_latin_1_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(
        "\n".join([FRENCH] * 5 + LINES[:20]).encode("latin-1") + b"\n\nAn end.\n"
    )
    found = findings(corpus=[str(tmp_path / "a.txt")])["invalid_utf8"]
    assert (found["level"], found["count"]) == ("error", 5)
    assert "iconv -f WINDOWS-1252" in found["remedy"]


def test_lines_that_end_in_cr_only_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("\r".join(LINES).encode() + b"\n\nAn end to it all.\n")
    found = findings(corpus=[str(tmp_path / "a.txt")])["foreign_line_ends"]
    assert found["level"] == "error"
    assert r"tr '\r' '\n'" in found["remedy"]


def test_damage_in_json_lines_is_found_in_its_line(tmp_path: Path) -> None:
    texts = [f'{{"text": "{line}"}}' for line in LINES[:9]]
    texts[4] = '{"text": "The waiter\\u0000 slept in the old \\ufffd garden chair."}'
    (tmp_path / "a.jsonl").write_text("\n".join(texts) + "\n")
    found = findings(corpus=[str(tmp_path / "a.jsonl")])
    for name in ("control_characters", "replacement_characters"):
        assert [example["place"] for example in found[name]["examples"]] == [f"{tmp_path / 'a.jsonl'}:5"]


def test_json_that_the_reader_had_to_mend_is_shown_as_it_stands(tmp_path: Path) -> None:
    lines = ['\ufeff{"text": "A <b>bold</b> word."}', '{"text": "A vertical \x0b tab and <i>slanted</i>."}']
    (tmp_path / "a.jsonl").write_text("\n".join([*lines, '{"text": "A NUL \x00 here."}']) + "\n", "utf-8")
    found = findings(corpus=[str(tmp_path / "a.jsonl")], text=CorpusConfig(prose_only=False))
    assert [example["place"].rpartition(":")[2] for example in found["markup"]["examples"]] == ["1", "2"]
    assert "bold" in found["markup"]["examples"][0]["text"]
    assert "\\x00" in found["control_characters"]["examples"][0]["text"]
