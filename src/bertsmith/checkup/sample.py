"""A sample of a corpus's lines, and what is measured on it: unknown pieces and languages."""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from bertsmith.checkup.finding import Finding, judge, percent
from bertsmith.checkup.places import Places
from bertsmith.text.tokenizer import Tokenizer

_MOST_LINES = 4000
_LEAST_BYTES = 60  # of a shorter line the language is a guess
_READ_CHARACTERS = 300  # are enough to tell a language
_SURE = 0.95
_SHOWN_LANGUAGES = 5


@dataclass(frozen=True)
class SampledLine:
    """A line with its place."""

    place: int
    text: str


class LineSample:
    """The lines with the smallest hashes: each distinct line has the same chance, in any order of reading."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, str]] = []  # (minus hash, place, text): the largest hash on top

    def add(self, hashed: int, place: int, line: str) -> None:
        """Offer a line; one that is in the sample already is not taken twice."""
        item = (-hashed, place, line)
        if len(self._heap) < _MOST_LINES:
            heapq.heappush(self._heap, item)
        elif item[0] > self._heap[0][0]:
            heapq.heapreplace(self._heap, item)

    def lines(self) -> list[SampledLine]:
        """Return the sample in the order of the corpus, each distinct line once."""
        distinct = {hashed: (place, text) for hashed, place, text in sorted(self._heap, reverse=True)}
        return [SampledLine(place, text) for place, text in sorted(distinct.values())]


@lru_cache
def _identifier() -> Any:
    """Return what tells languages; reading its model takes a third of a second."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def unknown_piece_findings(sample: list[SampledLine], tokenizer: Tokenizer, places: Places) -> list[Finding]:
    """Return the finding of pieces that the vocabulary does not know."""
    pieces = unknown = 0
    words: Counter[str] = Counter()
    first: dict[str, int] = {}
    for line in sample:
        ids, offsets = tokenizer.encode_with_offsets(line.text)
        pieces += len(ids)
        for id, (start, end) in zip(ids, offsets, strict=True):
            if id == tokenizer.unk_id:
                unknown += 1
                word = line.text[start:end]
                words[word] += 1
                first.setdefault(word, line.place)
    share = unknown / max(1, pieces)
    worst = words.most_common(2)
    return judge(
        "unknown_pieces",
        share,
        f"{percent(share)} of the pieces are [UNK] ({unknown:,} of {pieces:,} in a sample of "
        f"{len(sample):,} lines)",
        unknown,
        f"{percent(share)} of all training tokens say nothing, and as many masks have the answer [UNK]",
        "train a vocabulary on this corpus (bertsmith vocab --corpus ... --out vocab.txt), or take one of "
        "its language",
        places.examples(
            [first[word] for word, _ in worst], [f"{word!r}, {n:,} times: " for word, n in worst]
        ),
    )


def vocabulary_findings(tokenizer: Tokenizer) -> list[Finding]:
    """Return the finding of entries that stand in a vocabulary twice."""
    counts = Counter(tokenizer.vocab)
    repeated = sum(counts.values()) - len(counts)
    worst = ", ".join(repr(entry) for entry, number in counts.most_common(3) if number > 1)
    return judge(
        "vocabulary_repeats",
        repeated / max(1, tokenizer.vocab_size),
        f"{repeated:,} entries of the vocabulary stand in it twice, such as {worst}",
        repeated,
        "all but the last of equal entries are never used; their rows of the embedding are wasted",
        "train the vocabulary anew: bertsmith vocab --corpus ... --out vocab.txt",
    )


def language_findings(sample: list[SampledLine], places: Places) -> list[Finding]:
    """Return the finding of lines in other languages than most."""
    long_lines = [line for line in sample if len(line.text.encode()) >= _LEAST_BYTES]
    identifier = _identifier()
    languages: Counter[str] = Counter()
    first: dict[str, int] = {}
    for line in long_lines:
        language, probability = identifier.classify(line.text[:_READ_CHARACTERS])
        if probability >= _SURE:
            languages[language] += 1
            first.setdefault(language, line.place)
    total = max(1, languages.total())
    others = languages.most_common()[1:]
    count = sum(number for _, number in others)
    shown = ", ".join(
        f"{language} {percent(number / total)}"
        for language, number in languages.most_common(_SHOWN_LANGUAGES)
    )
    return judge(
        "languages",
        count / total,
        f"{percent(count / total)} of {total:,} sampled lines are in another language than most: {shown}",
        count,
        "each language needs its own part of the vocabulary and of the model; a little of one is not learnt",
        "if it is not meant, keep one language: classify each line with py3langid and drop the others",
        places.examples(
            [first[language] for language, _ in others[:2]], [f"{language}: " for language, _ in others[:2]]
        ),
    )
