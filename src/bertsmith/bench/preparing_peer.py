"""The peer of data preparation: ``datasets.map`` twice, with transformers' fast tokenizer.

Documents are split and tokenized in the first pass and paired in the second, by the original's algorithm
written out in Python. Random documents come from the same batch of a thousand documents, not from the whole
corpus, which is faster. Run as ``python -m bertsmith.bench.preparing_peer CORPUS VOCAB OUT``.
"""

from __future__ import annotations

import gzip
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bertsmith.bench.preparing import PROCESSES, SEQ_LEN
from bertsmith.text.sentences import split_sentences

SHORT_SHARE = 0.1


def prepare(corpus: str, vocab: str, out: str) -> None:
    """Prepare the corpus with Hugging Face's libraries."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processes share the processors already
    import datasets
    import transformers

    datasets.disable_progress_bars()
    tokenizer = transformers.BertTokenizerFast.from_pretrained(vocab)
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id

    def encode(batch: dict[str, list[list[str]]]) -> dict[str, list[list[list[int]]]]:
        split = [[s for line in lines for s in split_sentences(line)] for lines in batch["lines"]]
        flat = [sentence for sentences in split for sentence in sentences]
        ids = iter(tokenizer(flat, add_special_tokens=False)["input_ids"] if flat else [])
        return {"sentences": [[row for _ in sentences if (row := next(ids))] for sentences in split]}

    def pair(batch: dict[str, list[list[list[int]]]], places: list[int]) -> dict[str, list[Any]]:
        documents = [sentences for sentences in batch["sentences"] if sentences]
        draw = random.Random(places[0])
        rows: dict[str, list[Any]] = {"input_ids": [], "token_type_ids": [], "next_sentence_label": []}
        for place in range(len(documents)):
            for first, second, label in pairs_of(documents, place, draw):
                rows["input_ids"].append([cls, *first, sep, *second, sep])
                rows["token_type_ids"].append([0] * (len(first) + 2) + [1] * (len(second) + 1))
                rows["next_sentence_label"].append(label)
        return rows

    files = sorted(str(path) for path in Path(corpus).iterdir())
    cache = f"{out}-cache"
    texts = datasets.Dataset.from_generator(
        _read_documents, gen_kwargs={"files": files}, num_proc=PROCESSES, cache_dir=cache
    )
    encoded = texts.map(encode, batched=True, num_proc=PROCESSES, remove_columns=["lines"])
    paired = encoded.map(
        pair, batched=True, with_indices=True, num_proc=PROCESSES, remove_columns=["sentences"]
    )
    paired.save_to_disk(out)


def _read_documents(files: list[str]) -> Iterator[dict[str, list[str]]]:
    for path in files:
        lines: list[str] = []
        with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8") as file:
            for line in map(str.strip, file):
                if line:
                    lines.append(line)
                elif lines:
                    yield {"lines": lines}
                    lines = []
        if lines:
            yield {"lines": lines}


def pairs_of(
    documents: list[list[list[int]]], place: int, draw: random.Random
) -> Iterator[tuple[list[int], list[int], int]]:
    """Yield (first text, second text, whether it is random) of one document.

    Source: create_pretraining_data.py, create_instances_from_document, without its masks.
    """
    sentences, longest = documents[place], SEQ_LEN - 3
    target = draw.randint(2, longest) if draw.random() < SHORT_SHARE else longest
    chunk: list[list[int]] = []
    length = at = 0
    while at < len(sentences):
        chunk.append(sentences[at])
        length += len(sentences[at])
        if at == len(sentences) - 1 or length >= target:
            cut = draw.randint(1, len(chunk) - 1) if len(chunk) >= 2 else 1
            first = [piece for sentence in chunk[:cut] for piece in sentence]
            second: list[int] = []
            is_random = len(chunk) == 1 or draw.random() < 0.5
            if is_random:
                other = documents[_other_place(len(documents), place, draw)]
                for sentence in other[draw.randint(0, len(other) - 1) :]:
                    second.extend(sentence)
                    if len(second) >= target - len(first):
                        break
                at -= len(chunk) - cut
            else:
                second = [piece for sentence in chunk[cut:] for piece in sentence]
            _cut_to_fit(first, second, longest, draw)
            yield first, second, int(is_random)
            chunk, length = [], 0
        at += 1


def _other_place(number: int, place: int, draw: random.Random) -> int:
    for _ in range(10):
        found = draw.randint(0, number - 1)
        if found != place:
            break
    return found


def _cut_to_fit(first: list[int], second: list[int], longest: int, draw: random.Random) -> None:
    while len(first) + len(second) > longest:
        longer = first if len(first) > len(second) else second
        if draw.random() < 0.5:
            del longer[0]
        else:
            longer.pop()


if __name__ == "__main__":
    prepare(*sys.argv[1:])
