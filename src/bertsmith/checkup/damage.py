"""Damaged characters and what does not belong into running text, line by line."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import ftfy
from ftfy.badness import BADNESS_RE, is_bad

from bertsmith.checkup.finding import Finding, judge, many, percent
from bertsmith.checkup.places import Places
from bertsmith.text.corpus import CorpusCounts

_MARKERS = re.compile(r"\[(?:PAD|UNK|CLS|SEP|MASK)\]|</?s>|<(?:mask|pad|unk)>|<\|[a-z_]+\|>", re.IGNORECASE)
_MARKUP = re.compile(
    r"&(?:[a-z]{2,8}|#\d{2,6}|#x[0-9a-f]{2,6});|</?[a-z][a-z0-9]*(?:\s[^<>]*)?/?>|\{\{|\}\}|\[\[|\]\]",
    re.IGNORECASE,
)
_CONTROLS = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x9f\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064"
    "\u2066-\u2069\ue000-\uf8ff]"
)
_LOST = re.compile("\ufffd")
_LINE_ENDS = re.compile("[\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029]")
_MOST_EXAMPLES = 2


@dataclass
class Tally:
    """How many lines show something, and the first of them."""

    lines: int = 0
    places: list[int] = field(default_factory=list)

    def add(self, place: int) -> None:
        """Count one line."""
        self.lines += 1
        if len(self.places) < _MOST_EXAMPLES:
            self.places.append(place)


class Damage:
    """Looks at every line: those that the reader mended, and those that go into training.

    Args:
        counts: the reader's; what it removes is counted there, and its lines are found by the difference.
    """

    def __init__(self, counts: CorpusCounts) -> None:
        self._counts = counts
        self._seen = self._mended()
        self._mended_lines = [Tally() for _ in self._seen]
        self._markers, self._markup, self._controls, self._mojibake = (Tally() for _ in range(4))
        self._kept = 0

    def _mended(self) -> tuple[int, ...]:
        counts = self._counts
        return (
            counts.invalid_utf8_lines,
            counts.replacement_characters,
            counts.nul_characters,
            counts.foreign_line_ends,
        )

    def note_mended(self, place: int) -> None:
        """Take note of what the reader counted since the last call; it belongs to the line at ``place``."""
        now = self._mended()
        if now == self._seen:
            return
        for tally, before, after in zip(self._mended_lines, self._seen, now, strict=True):
            if after > before:
                tally.add(place)
        self._seen = now

    def look(self, line: str, place: int) -> None:
        """Look at a line that goes into training."""
        self._kept += 1
        if ("[" in line or "<" in line) and _MARKERS.search(line):
            self._markers.add(place)
        elif ("&" in line or "<" in line or "[[" in line or "{{" in line) and _MARKUP.search(line):
            self._markup.add(place)
        if line.isascii() and line.isprintable():
            return
        if not line.isprintable() and _CONTROLS.search(line):
            self._controls.add(place)
        if is_bad(line) and ftfy.fix_encoding(line) != line:
            self._mojibake.add(place)

    def findings(self, places: Places) -> list[Finding]:
        """Return one finding for each kind of damage."""
        return [*self._of_bytes(places), *self._of_characters(places)]

    def _of_bytes(self, places: Places) -> list[Finding]:
        counts = self._counts
        total = max(1, counts.lines)
        invalid, replaced, nul, line_ends = self._mended_lines
        return [
            *judge(
                "invalid_utf8",
                invalid.lines / total,
                f"bytes that are no UTF-8 in {many(invalid.lines, 'line')}; they are removed",
                invalid.lines,
                "words lose their accented or Chinese letters and become other words",
                "convert the file from what it is: iconv -f WINDOWS-1252 -t UTF-8 old.txt > corpus.txt "
                "(Chinese: -f GB18030)",
                places.examples(invalid.places, around=_LOST),
            ),
            *judge(
                "replacement_characters",
                replaced.lines / total,
                f"{counts.replacement_characters:,} times U+FFFD in {many(replaced.lines, 'line')}: an "
                "earlier program met bytes that it could not read; they are removed",
                replaced.lines,
                "the letters are lost in the file already: words lose them and become other words",
                "get the text again from its source and convert it with the right encoding",
                places.examples(replaced.places, around=_LOST),
            ),
            *judge(
                "foreign_line_ends",
                counts.foreign_line_ends / (counts.foreign_line_ends + total),
                f"{counts.foreign_line_ends:,} times a lone CR, U+2028 or the like in "
                f"{many(line_ends.lines, 'line')}; read as spaces: only LF and CR LF end a line",
                line_ends.lines,
                "where they were meant as line ends, paragraphs are glued together",
                r"tr '\r' '\n' < old.txt > corpus.txt",
                places.examples(line_ends.places, around=_LINE_ENDS),
            ),
            *judge(
                "control_characters",
                nul.lines / total,
                f"{counts.nul_characters:,} times NUL in {many(nul.lines, 'line')}; they are removed",
                nul.lines,
                "often the file is UTF-16, and every other byte of it is lost",
                "file old.txt tells what it is; iconv -f UTF-16 -t UTF-8 old.txt > corpus.txt",
                places.examples(nul.places, around=_CONTROLS),
            ),
        ]

    def _of_characters(self, places: Places) -> list[Finding]:
        total = max(1, self._kept)
        found = []
        for name, tally, pattern, what, cost, remedy in (
            (
                "mojibake",
                self._mojibake,
                BADNESS_RE,
                "letters that were decoded wrongly once, such as 'Ã©' for 'é',",
                "every such letter becomes two or three, and its words are in no vocabulary",
                "pip install ftfy; ftfy old.txt -o corpus.txt",
            ),
            (
                "markup",
                self._markup,
                _MARKUP,
                "markup (HTML tags, entities such as '&nbsp;', wiki brackets)",
                "the model learns to predict tags, the easiest words of all",
                "take the text out of its markup: trafilatura for web pages, WikiExtractor for Wikipedia",
            ),
            (
                "special_tokens",
                self._markers,
                _MARKERS,
                "a special token as text, such as '[MASK]' or '<unk>',",
                "bertsmith reads it as plain text, but other programs that read the tokenizer take it for "
                "the token itself",
                r"sed -E 's/\[(PAD|UNK|CLS|SEP|MASK)\]//g' old.txt > corpus.txt; text with <unk> was "
                "tokenized before: get the original",
            ),
            (
                "control_characters",
                self._controls,
                _CONTROLS,
                "characters that nobody sees (controls, soft hyphens, zero-width or private ones)",
                "the tokenizer drops most of them, which joins or splits words",
                r"perl -CSD -pe 's/[\x{ad}\x{200b}\x{200e}\x{200f}\x{2060}]//g' old.txt > corpus.txt",
            ),
        ):
            found += judge(
                name,
                tally.lines / total,
                f"{what} in {many(tally.lines, 'line')} ({percent(tally.lines / total)})",
                tally.lines,
                cost,
                remedy,
                places.examples(tally.places, around=pattern),
            )
        return found
