"""Training rows for QNLI, made from SQuAD's training file by the rule that made QNLI.

    python benchmarks/qnli_from_squad.py --squad train-v1.1.json --out QNLI/train.tsv

The rule, from the GLUE paper (QNLI's paragraph and its appendix) and from what the published dev and test
rows show: a question is paired with the sentence of its passage that holds the answer (entailment) and with
the most similar sentence that does not (not_entailment). Chosen are all questions for which that other
sentence is more similar than the one with the answer, and as many again for which it is the closest second.

What deviates: GLUE measures similarity by averaged GloVe vectors, here it is the cosine of word counts;
GLUE's splitter is not published, here it is ``bertsmith.text.sentences``. So the rows are not those of the
published file; with SQuAD's dev file, ``--compare QNLI/dev.tsv`` says how many are.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertsmith.text.sentences import split_sentences
from glue_files import text_of

HEADER = ("index", "question", "sentence", "label")
LABELS = ("entailment", "not_entailment")
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Pairing:
    """A question with the sentence that answers it and the most similar one that does not.

    Attributes:
        question: of SQuAD.
        answer: the sentence that holds all published answers.
        other: the most similar sentence that holds none.
        lead: similarity of ``answer`` minus that of ``other``.
    """

    question: str
    answer: str
    other: str
    lead: float


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--squad", required=True, help="a SQuAD 1.1 file, .json or .json.gz")
    parser.add_argument("--out", help="the .tsv to write")
    parser.add_argument("--seed", type=int, default=0, help="of the order of the rows")
    parser.add_argument("--compare", help="a published QNLI file with labels")
    arguments = parser.parse_args()
    squad = read(Path(arguments.squad))
    if arguments.out:
        print(json.dumps(write(squad, Path(arguments.out), arguments.seed)))
    if arguments.compare:
        print(json.dumps(agreement(squad, text_of(Path(arguments.compare)))))


def read(path: Path) -> dict[str, Any]:
    """Return the content of a SQuAD file, packed or not."""
    squad: dict[str, Any] = json.loads(text_of(path))
    return squad


def write(squad: dict[str, Any], path: Path, seed: int) -> dict[str, int]:
    """Write the rows, two a question, in an order that the seed draws; return their counts."""
    everything = list(pairings(squad))
    found = chosen(everything)
    rows = [
        (" ".join(pairing.question.split()), " ".join(sentence.split()), label)
        for pairing in found
        for sentence, label in zip((pairing.answer, pairing.other), LABELS, strict=True)
    ]
    random.Random(seed).shuffle(rows)
    lines = ["\t".join(HEADER), *("\t".join((str(index), *row)) for index, row in enumerate(rows))]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="")
    return {"questions_with_a_pair": len(everything), "questions_chosen": len(found), "rows": len(rows)}


def pairings(squad: dict[str, Any]) -> Iterator[Pairing]:
    """Yield every question that has both sentences, in the order of the file."""
    for article in squad["data"]:
        for paragraph in article["paragraphs"]:
            sentences = [
                (start, sentence, counts(sentence)) for start, sentence in places(paragraph["context"])
            ]
            for question in paragraph["qas"]:
                pairing = paired(question, sentences)
                if pairing is not None:
                    yield pairing


def paired(question: dict[str, Any], sentences: list[tuple[int, str, Counter[str]]]) -> Pairing | None:
    """Return the question with its two sentences; ``None`` when the answers lie in none or in several."""
    answers = question["answers"]
    holding, others = [], []
    for start, sentence, words in sentences:
        end = start + len(sentence)
        inside = [start <= answer["answer_start"] < end for answer in answers]
        if all(inside):
            holding.append((sentence, words))
        elif not any(inside) and not any(answer["text"] in sentence for answer in answers):
            others.append((sentence, words))
    if len(holding) != 1 or not others:
        return None
    asked = counts(question["question"])
    (answer, words), (other, other_words) = holding[0], max(others, key=lambda one: cosine(asked, one[1]))
    return Pairing(question["question"], answer, other, cosine(asked, words) - cosine(asked, other_words))


def places(context: str) -> Iterator[tuple[int, str]]:
    """Yield where each sentence of a passage begins, and the sentence."""
    start = 0
    for sentence in split_sentences(context):
        start = context.index(sentence, start)
        yield start, sentence
        start += len(sentence)


def counts(text: str) -> Counter[str]:
    return Counter(_WORD.findall(text.lower()))


def cosine(first: Counter[str], second: Counter[str]) -> float:
    product = sum(count * second[word] for word, count in first.items() if word in second)
    lengths = sum(n * n for n in first.values()) * sum(n * n for n in second.values())
    return product / math.sqrt(lengths) if lengths else 0.0


def chosen(found: Iterable[Pairing]) -> list[Pairing]:
    """Return the pairings that the rule keeps, in their order."""
    numbered = list(enumerate(found))
    misleading = [number for number, pairing in numbered if pairing.lead <= 0]
    close = sorted((pairing.lead, number) for number, pairing in numbered if pairing.lead > 0)
    kept = {*misleading, *(number for _, number in close[: len(misleading)])}
    return [pairing for number, pairing in numbered if number in kept]


def agreement(squad: dict[str, Any], published: str) -> dict[str, float]:
    """Return the share of a published file's rows that have our sentence, by label, and of its questions."""
    ours = {pairing.question.strip(): pairing for pairing in pairings(squad)}
    kept = {pairing.question.strip() for pairing in chosen(ours.values())}
    rows = list(csv.DictReader(io.StringIO(published), delimiter="\t", quoting=csv.QUOTE_NONE))
    same = {label: [0, 0] for label in LABELS}
    for row in rows:
        pairing = ours.get(row["question"].strip())
        if pairing is not None:
            sentence = pairing.answer if row["label"] == LABELS[0] else pairing.other
            same[row["label"]][0] += sentence.strip() == row["sentence"].strip()
            same[row["label"]][1] += 1
    questions = {row["question"].strip() for row in rows}
    return {
        **{f"same_sentence_{label}": equal / max(1, total) for label, (equal, total) in same.items()},
        "questions_paired": len(questions & ours.keys()) / max(1, len(questions)),
        "questions_chosen": len(questions & kept) / max(1, len(questions)),
    }


if __name__ == "__main__":
    main()
