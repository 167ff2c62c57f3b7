"""A corpus prepared twice: by ``prepare``, and by the plain version with the same random numbers."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import BertWordPieceTokenizer

from bertsmith.data.shards import Instances
from bertsmith.randomness import generator
from bertsmith.recipes.config import PrepareConfig
from bertsmith.recipes.prepare import prepare
from bertsmith.text.config import CorpusConfig
from bertsmith.text.sentences import split_sentences
from bertsmith.text.tokenizer import Tokenizer
from tests.conformance import plain_instances
from tests.conformance.plain_instances import MaskNumbers, Numbers, Pair, Pieces

AS_GIVEN = CorpusConfig(sentences="line", prose_only=False)
SEED, PASSES = 5, 2
MOST = {32: 5, 128: 20}
"""Predictions of the longest rows."""


@dataclass(frozen=True)
class Prepared:
    """A corpus prepared by us, and its pairs by the plain version."""

    instances: Instances
    tokenizer: Tokenizer
    vocabulary: Pieces
    pairs: list[Pair]
    manifest: dict[str, Any]

    @property
    def rows(self) -> Iterator[Pieces]:
        for pair in self.pairs:
            yield ["[CLS]", *pair.first, "[SEP]", *pair.second, "[SEP]"]


def write_corpus(shared_data: Path, folder: Path) -> Path:
    """Write sixteen documents of real text, a sentence a line, and the published vocabulary beside them."""
    text = gzip.decompress((shared_data / "corpus" / "starter-en.txt.gz").read_bytes()).decode()
    documents = [document.split("\n") for document in text.split("\n\n")[:16]]
    lines = [
        "\n".join(sentence for paragraph in document for sentence in split_sentences(paragraph))
        for document in documents
    ]
    (folder / "corpus.txt").write_text("\n\n".join(lines) + "\n", encoding="utf-8")
    words = gzip.decompress((shared_data / "vocab" / "bert-base-uncased-vocab.txt.gz").read_bytes())
    (folder / "vocab.txt").write_bytes(words)
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True}))
    return folder / "corpus.txt"


def prepare_both(corpus: Path, folder: Path, seq_len: int) -> Prepared:
    """Prepare a corpus in rows of a length."""
    data = folder / "data"
    vocab = corpus.with_name("vocab.txt")
    prepare(
        PrepareConfig(
            [str(corpus)],
            str(vocab),
            str(data),
            seq_len=seq_len,
            passes=PASSES,
            heldout=0.0,
            workers=1,
            seed=SEED,
            text=AS_GIVEN,
        )
    )
    instances = Instances.open(data, "train")
    wordpiece = BertWordPieceTokenizer(str(vocab), lowercase=True)
    documents = [
        [wordpiece.encode(sentence, add_special_tokens=False).tokens for sentence in document]
        for document in plain_instances.read_documents(corpus)
    ]
    pairs = [
        pair
        for pass_ in range(PASSES)
        for own in range(len(documents))
        for pair in plain_instances.pairs_of(
            documents, own, seq_len, 0.1, Numbers(generator(SEED, "pairing", pass_, own).random)
        )
    ]
    vocabulary = vocab.read_text(encoding="utf-8").splitlines()
    manifest = json.loads((data / "manifest.json").read_text())
    return Prepared(instances, Tokenizer.load(data), vocabulary, pairs, manifest)


def words_of(prepared: Prepared, ids: NDArray[Any]) -> Pieces:
    return [prepared.vocabulary[id] for id in ids.tolist()]


def mask_numbers(
    prepared: Prepared, number: int, most: int, epoch: int = 0, whole_words: bool = False
) -> MaskNumbers:
    """Return the numbers that our masks of an instance are drawn from."""
    random = generator(SEED, "masking", epoch, number).random
    size = len(prepared.instances.rows(np.array([number]))[0])
    budget = min(most, max(1, round(size * 0.15)))

    def shuffle(units: list[list[int]]) -> list[list[int]]:
        if not whole_words and len(units) <= budget:
            return units  # all are chosen, so no order is drawn
        return [units[place] for place in np.argsort(random(len(units)))]

    return MaskNumbers(shuffle, lambda count: list(zip(*random((2, count)).tolist(), strict=True)))
