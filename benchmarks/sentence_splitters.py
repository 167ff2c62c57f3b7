"""Compare sentence splitters on paragraphs whose sentence ends were marked by hand, and on speed.

The paragraphs are those of the shared corpus; sentence_boundaries.json holds, for each, the file, the number
of the line and where its sentences after the first begin, in characters. The rules of ``bertsmith`` were
written with the "development" paragraphs in view; the "test" paragraphs were drawn and marked afterwards and
nothing was changed for them.

    python benchmarks/sentence_splitters.py [--json] [--data FOLDER]

Peers are used where they are installed: pip install sentencex blingfire pysbd syntok segtok
"""

from __future__ import annotations

import argparse
import gzip
import importlib.metadata
import importlib.util
import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bertsmith.text.sentences import split_sentences

ROOT = Path(__file__).resolve().parent.parent
BOUNDARIES = Path(__file__).with_name("sentence_boundaries.json")
SPEED_FILES = {"en": ("books-en/train-00.txt.gz", "wiki-en/train-00.txt.gz"), "zh": ("zh/train-00.txt.gz",)}
SPEED_SECONDS = 3.0

Splitter = Callable[[str], list[str]]


def splitters(language: str) -> dict[str, Splitter]:
    """Return name -> splitter of ours and of every peer that is installed and knows the language."""
    found: dict[str, Splitter] = {"bertsmith": split_sentences}
    if importlib.util.find_spec("sentencex"):
        import sentencex

        found["sentencex"] = lambda text: list(sentencex.segment(language, text))
    if importlib.util.find_spec("blingfire"):
        import blingfire

        found["blingfire"] = lambda text: blingfire.text_to_sentences(text).split("\n")
    if importlib.util.find_spec("pysbd"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pysbd

            found["pysbd"] = pysbd.Segmenter(language=language).segment
    if importlib.util.find_spec("syntok") and language == "en":
        found["syntok"] = _syntok()
    if importlib.util.find_spec("segtok") and language == "en":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from segtok.segmenter import split_single

        found["segtok"] = lambda text: list(split_single(text))
    return found


def _syntok() -> Splitter:
    from syntok.segmenter import segment
    from syntok.tokenizer import Tokenizer

    tokenizer = Tokenizer(emit_hyphen_or_underscore_sep=True, replace_not_contraction=False)

    def split(text: str) -> list[str]:
        sentences = segment(iter(tokenizer.split(text)))
        return ["".join(token.spacing + token.value for token in sentence) for sentence in sentences]

    return split


def starts_of(text: str, sentences: list[str]) -> set[int] | None:
    """Return where the sentences after the first begin in the text; ``None`` if characters were altered."""
    starts = []
    place = 0
    for sentence in sentences:
        for character in "".join(sentence.split()):
            while place < len(text) and text[place].isspace():
                place += 1
            if place == len(text) or text[place] != character:
                return None
            place += 1
        while place < len(text) and text[place].isspace():
            place += 1
        starts.append(place)
    return {start for start in starts if 0 < start < len(text)}


def quality(split: Splitter, paragraphs: list[tuple[str, list[int]]]) -> dict[str, float]:
    """Return precision, recall and F1 of the boundaries, and the share of paragraphs split exactly."""
    right = wrong = missed = exact = altered = 0
    for text, marked in paragraphs:
        found = starts_of(text, split(text))
        altered += found is None
        found = found or set()
        right += len(found & set(marked))
        wrong += len(found - set(marked))
        missed += len(set(marked) - found)
        exact += found == set(marked)
    return {
        "precision": round(right / max(right + wrong, 1), 4),
        "recall": round(right / max(right + missed, 1), 4),
        "f1": round(2 * right / max(2 * right + wrong + missed, 1), 4),
        "exact_paragraphs": round(exact / len(paragraphs), 4),
        "altered_paragraphs": altered,
    }


def megabytes_per_second(split: Splitter, paragraphs: list[str]) -> float:
    """Return the speed, measured for about three seconds at most."""
    split(paragraphs[0])
    read = 0
    started = time.perf_counter()
    for text in paragraphs:
        split(text)
        read += len(text.encode())
        if time.perf_counter() - started > SPEED_SECONDS:
            break
    return round(read / 1e6 / (time.perf_counter() - started), 3)


def lines_of(path: Path) -> list[str]:
    """Return the lines of a gzip file."""
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        return file.read().split("\n")


def sample(corpus: Path, part: str, language: str) -> list[tuple[str, list[int]]]:
    """Return the marked paragraphs of a language as (text, starts)."""
    rows = json.loads(BOUNDARIES.read_text())[part]
    rows = [row for row in rows if row[0].startswith("zh/") == (language == "zh")]
    files = {name: lines_of(corpus / name) for name in sorted({row[0] for row in rows})}
    return [(files[name][number - 1], starts) for name, number, starts in rows]


def measure(corpus: Path) -> dict[str, Any]:
    """Return the figures of every splitter."""
    figures: dict[str, dict[str, Any]] = {}
    for language, names in SPEED_FILES.items():
        texts = [line for name in names for line in lines_of(corpus / name)[:6000] if line]
        for name, split in splitters(language).items():
            figures.setdefault(name, {})[language] = {
                part: quality(split, sample(corpus, part, language)) for part in ("development", "test")
            } | {"megabytes_per_second": megabytes_per_second(split, texts)}
    ours = figures.pop("bertsmith")
    return {
        "ours": ours,
        "peers": figures,
        "ratios": {
            name: {
                f"{language}_test_f1": round(ours[language]["test"]["f1"] / max(peer["test"]["f1"], 1e-9), 4)
                for language, peer in languages.items()
            }
            for name, languages in figures.items()
        },
        "unit": "boundary precision, recall, F1; MB/s of one core",
        "versions": {name: importlib.metadata.version(name) for name in ("bertsmith", *figures)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    default = os.environ.get("BERTSMITH_DATA") or str(ROOT.parent / "shared" / "data")
    parser.add_argument("--data", type=Path, default=Path(default), help="folder that holds corpus/")
    options = parser.parse_args()
    corpus = options.data / "corpus"
    if not corpus.is_dir():
        sys.exit(f"no {corpus}: name the folder of the real data by --data or BERTSMITH_DATA")
    result = measure(corpus)
    if options.json:
        print(json.dumps(result))
        return
    for language in SPEED_FILES:
        print(f"{language:12} {'test F1':>8} {'P':>7} {'R':>7} {'exact':>7} {'dev F1':>8} {'MB/s':>8}")
        for name, figures in {"bertsmith": result["ours"], **result["peers"]}.items():
            if row := figures.get(language):
                test = row["test"]
                numbers = (test["f1"], test["precision"], test["recall"], test["exact_paragraphs"])
                print(
                    f"{name:12} {numbers[0]:8.4f} {numbers[1]:7.4f} {numbers[2]:7.4f} {numbers[3]:7.3f} "
                    f"{row['development']['f1']:8.4f} {row['megabytes_per_second']:8.2f}"
                )


if __name__ == "__main__":
    main()
