"""A raw corpus, read once from beginning to end; memory does not grow with it but for 20 bytes a line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from bertsmith.checkup.contamination import Contamination, EvaluationRow
from bertsmith.checkup.damage import Damage, Tally
from bertsmith.checkup.finding import Finding, judge, percent
from bertsmith.checkup.likeness import Sketches, near_duplicate_findings
from bertsmith.checkup.places import Places
from bertsmith.checkup.repeats import LineIndex, Repeats
from bertsmith.checkup.sample import (
    LineSample,
    language_findings,
    unknown_piece_findings,
    vocabulary_findings,
)
from bertsmith.checkup.words import WordHashes, words_of
from bertsmith.remote import Location
from bertsmith.text.config import CorpusConfig
from bertsmith.text.corpus import CorpusCounts, CorpusReader
from bertsmith.text.sentences import document_sentences
from bertsmith.text.streams import is_json_lines
from bertsmith.text.tokenizer import Tokenizer

SHORT_WORDS = 32
"""A document of fewer words is short: two of them do not fill an instance of 128 pieces."""
LITTLE_WORDS = 1_000_000
_SEVERAL_DOCUMENTS = 10  # of fewer, one is always large
_BLOCK_WORDS = 1 << 17
_PAIRED = ("nsp", "sop")


@dataclass
class _Block:
    """Documents that wait to be looked at together: their words end to end."""

    words: list[str] = field(default_factory=list)
    document_starts: list[int] = field(default_factory=list)
    line_starts: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)


class CorpusSurvey:
    """Looks at every line and document of a corpus."""

    def __init__(
        self, files: Sequence[Location], config: CorpusConfig, against: list[EvaluationRow], run_words: int
    ) -> None:
        """Make a survey.

        Args:
            files: what ``list_files`` returned.
            config: how the text is read.
            against: evaluation rows that should not stand in the corpus.
            run_words: words in a row that count as the same.

        Raises:
            InputError: ``run_words`` is too small.
        """
        self.counts = CorpusCounts()
        self.words = 0
        self._config = config
        self._reader = CorpusReader(files, config, self.counts, self._on_line)
        self._places = Places(files, config.text_field)
        self._index = LineIndex()
        self._sketches = Sketches()
        self._damage = Damage(self.counts)
        self._sample = LineSample()
        self._hashes = WordHashes()
        self._contamination = Contamination(against, run_words, self._hashes) if against else None
        self._block = _Block()
        self._waiting: list[tuple[int, str]] = []  # (place, line) of the document that is being read
        self._after_blank = True
        self._lines_are_documents = False
        self._first_place = self._place = 0
        self._single, self._short = Tally(), Tally()
        self._largest = (0, 0)  # characters, place
        self._blocked_documents = 0

    @property
    def compared_rows(self) -> int:
        """Evaluation rows that are long enough to be compared."""
        return self._contamination.checked if self._contamination is not None else 0

    def read(self, report: Callable[[int, float | None], None]) -> None:
        """Read the corpus; ``report`` is told the characters of each document and the share that is done."""
        for document in self._reader.documents():
            self._take(document)
            report(sum(map(len, document)), self._reader.fraction())
        self._damage.note_mended(self._place)
        self._end_block()

    def findings(self, tokenizer: Tokenizer | None, pairing: str) -> list[Finding]:
        """Return all findings; to be called after ``read``.

        Args:
            tokenizer: of the vocabulary that the corpus is meant for, if there is one.
            pairing: what the corpus is meant for; some findings matter for pairs only.
        """
        repeats = Repeats(self._index, self._places)
        found = [*repeats.findings(), *near_duplicate_findings(self._sketches, repeats, self._places)]
        sample = self._sample.lines()
        found += [*self._damage.findings(self._places), *language_findings(sample, self._places)]
        if tokenizer is not None:
            found += [
                *unknown_piece_findings(sample, tokenizer, self._places),
                *vocabulary_findings(tokenizer),
            ]
        if self._contamination is not None:
            found += self._contamination.findings(self._places)
        if pairing in _PAIRED:
            found += self._of_pairs(pairing)
        return [*found, *self._of_sizes()]

    def _on_line(self, file: Location, number: int, line: str) -> None:
        """Remember where the lines of the next document stand."""
        if number == 1:
            self._begin_file(file)
        self._place = self._first_place + number - 1
        self._damage.note_mended(self._place)
        if not line:
            self._after_blank = True
            return
        if self._after_blank or self._lines_are_documents:
            self._waiting.clear()  # the document before is done, or nothing of it was kept
        self._after_blank = False
        self._waiting.append((self._place, line))

    def _begin_file(self, file: Location) -> None:
        is_json = is_json_lines(file)
        self._lines_are_documents = is_json or self._config.documents == "line"
        self._first_place = self._places.pack(file, 1)
        self._after_blank = True

    def _take(self, document: list[str]) -> None:
        self._damage.note_mended(self._place)  # what the text of a .jsonl held was counted after its line
        places = self._locate(document)
        hashes = self._index.add(document, places)
        block = self._block
        first_word = len(block.words)
        block.document_starts.append(first_word)
        for line, place, hashed in zip(document, places, hashes, strict=True):
            self._damage.look(line, place)
            self._sample.add(hashed, place, line)
            block.line_starts.append(len(block.words))
            block.places.append(place)
            block.words += words_of(line)
        self._measure(document, places[0], len(block.words) - first_word)
        if len(block.words) >= _BLOCK_WORDS:
            self._end_block()

    def _locate(self, document: list[str]) -> list[int]:
        """Return the place of each line of a document: they stand, in order, among those that wait."""
        places = []
        waiting = iter(self._waiting)
        for line in document:
            place = next((place for place, read in waiting if read == line), None)
            if place is None:  # the lines of a .jsonl object stand in one line of the file
                return [self._place] * len(document)
            places.append(place)
        return places

    def _measure(self, document: list[str], place: int, words: int) -> None:
        self.words += words
        if len(document) == 1 and len(document_sentences(document, self._config)) == 1:
            self._single.add(place)
        if words < SHORT_WORDS:
            self._short.add(place)
        self._largest = max(self._largest, (sum(map(len, document)), place))

    def _end_block(self) -> None:
        block, self._block = self._block, _Block()
        words = self._hashes.of(block.words)
        starts = np.array([*block.document_starts, len(words)], dtype=np.int64)
        self._sketches.add(words, starts, self._blocked_documents)
        if self._contamination is not None:
            line_starts = np.array(block.line_starts, dtype=np.int64)
            self._contamination.look(words, starts, line_starts, block.places)
        self._blocked_documents += len(block.document_starts)

    def _of_pairs(self, pairing: str) -> list[Finding]:
        documents = max(1, self.counts.documents)
        single = self._single.lines
        boundaries = (
            "separate documents by blank lines and paragraphs by single line ends, or (one document a line) "
            "--text.documents line"
        )
        if self.counts.documents == 1:
            return judge(
                "one_document",
                1.0,
                "the whole corpus is one document",
                1,
                f"pairing {pairing} needs at least two: prepare refuses",
                f"{boundaries}; or prepare --pairing full-sentences",
            )
        return judge(
            "one_sentence_documents",
            single / documents,
            f"{single:,} of {documents:,} documents have a single sentence",
            single,
            f"{percent(single / documents)} of the documents have no next sentence: their pairs are all "
            "random, and what tells a pair apart is its length",
            f"{boundaries}; or prepare --pairing doc-sentences",
            self._places.examples(self._single.places),
        )

    def _of_sizes(self) -> list[Finding]:
        counts = self.counts
        dropped = sum(counts.dropped_lines.values())
        reasons = ", ".join(f"{reason} {n:,}" for reason, n in sorted(counts.dropped_lines.items()))
        documents = max(1, counts.documents)
        large = self._largest[0] / max(1, counts.characters) if documents >= _SEVERAL_DOCUMENTS else 0.0
        return [
            *judge(
                "dropped_lines",
                dropped / max(1, counts.lines),
                f"{dropped:,} of {counts.lines:,} lines are left out because they are no prose ({reasons})",
                dropped,
                "text that you collected does not reach the model; verse, code and logs look like lists",
                "if these lines are what the model is for: --text.prose-only False",
            ),
            *judge(
                "short_documents",
                self._short.lines / documents,
                f"{self._short.lines:,} of {documents:,} documents have fewer than {SHORT_WORDS} words",
                self._short.lines,
                "instances are short or made of many documents: the model sees no long context",
                "if they are paragraphs of longer documents, take out the blank lines between them",
                self._places.examples(self._short.places),
            ),
            *judge(
                "large_document",
                large,
                f"one document holds {percent(large)} of the text",
                1,
                "random next sentences come from few documents, and held-out documents are all small",
                "separate what belongs apart (chapters, articles) by blank lines",
                self._places.examples([self._largest[1]]) if large > 0 else (),
            ),
            *judge(
                "little_text",
                max(0.0, 1.0 - self.words / LITTLE_WORDS),
                f"the corpus has {self.words:,} words",
                self.words,
                "a model of millions of weights learns so little by heart; the paper had 3,300 million words",
                "go on from a trained model: pretrain --init MODEL",
            ),
        ]
