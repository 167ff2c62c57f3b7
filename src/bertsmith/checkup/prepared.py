"""Prepared data: every instance of a data directory, shard by shard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bertsmith.checkup.finding import Example, Finding, excerpt, judge, percent
from bertsmith.checkup.repeats import Groups
from bertsmith.checkup.sample import vocabulary_findings
from bertsmith.data.pairing import NO_LABEL, RANDOM
from bertsmith.data.shards import SPLITS, Instances
from bertsmith.text.tokenizer import Tokenizer

_AGAIN = "prepare the data again: bertsmith prepare --corpus ... --vocab ... --out ..."
_BLOCK_INSTANCES = 1 << 13


@dataclass
class _Seen:
    """What was seen in the instances of one split, one entry an instance.

    Attributes:
        beyond: instances with an id that the vocabulary does not have.
        broken: instances that do not begin with [CLS] and end with [SEP], or hold [PAD] or [MASK].
        hashes: uint64 of every instance.
        lengths: pieces of every instance.
        labels: of every instance.
        unknown: [UNK]s over all.
        pieces: over all, special tokens counted.
    """

    beyond: list[int] = field(default_factory=list)
    broken: list[int] = field(default_factory=list)
    hashes: list[int] = field(default_factory=list)
    lengths: list[NDArray[np.int64]] = field(default_factory=list)
    labels: list[NDArray[np.int64]] = field(default_factory=list)
    unknown: int = 0
    pieces: int = 0


class PreparedData:
    """Looks at every instance of a data directory.

    Args:
        directory: what ``prepare`` wrote.

    Raises:
        InputError: a file is missing, or is not the one that the manifest describes, by its SHA-256.
    """

    def __init__(self, directory: str) -> None:
        self.directory = Path(directory)
        self._instances = {split: Instances.open(directory, split, verify=True) for split in SPLITS}
        self.manifest = self._instances["train"].manifest
        self._tokenizer = Tokenizer.load(directory)
        self._seen = {split: _Seen() for split in SPLITS}

    def __len__(self) -> int:
        return sum(map(len, self._instances.values()))

    def read(self, report: Callable[[int, float | None], None]) -> None:
        """Read every instance; ``report`` is told the pieces of each block and the share that is done."""
        done = 0
        for split, instances in self._instances.items():
            for start in range(0, len(instances), _BLOCK_INSTANCES):
                indices = np.arange(start, min(start + _BLOCK_INSTANCES, len(instances)), dtype=np.int64)
                pieces = self._take(self._seen[split], instances, indices)
                done += len(indices)
                report(pieces, done / len(self))

    def _take(self, seen: _Seen, instances: Instances, indices: NDArray[np.int64]) -> int:
        tokenizer = self._tokenizer
        rows = instances.rows(indices)
        lengths = instances.lengths(indices)
        ids = np.concatenate(rows).astype(np.int64)  # (pieces,)
        starts = np.cumsum(lengths) - lengths  # (instances,)
        ends = starts + lengths - 1
        inner = np.isin(ids, [tokenizer.pad_id, tokenizer.mask_id])
        is_broken = (ids[starts] != tokenizer.cls_id) | (ids[ends] != tokenizer.sep_id)
        is_broken |= np.logical_or.reduceat(inner, starts)
        seen.beyond += indices[np.maximum.reduceat(ids, starts) >= tokenizer.vocab_size].tolist()
        seen.broken += indices[is_broken].tolist()
        seen.hashes += [
            int.from_bytes(blake2b(row.tobytes(), digest_size=8).digest(), "little") for row in rows
        ]
        seen.lengths.append(lengths)
        seen.labels.append(instances.labels(indices))
        seen.unknown += int((ids == tokenizer.unk_id).sum())
        seen.pieces += len(ids)
        return len(ids)

    def findings(self) -> list[Finding]:
        """Return all findings; to be called after ``read``."""
        return [
            *self._of_vocabulary(),
            *(finding for split in SPLITS for finding in self._of_rows(split)),
            *self._of_pairs(),
            *self._of_repetition(),
            *self._of_sizes(),
            *vocabulary_findings(self._tokenizer),
        ]

    def _of_vocabulary(self) -> list[Finding]:
        stored = self.manifest["vocabulary"]
        found = self._tokenizer.identity()
        seen = self._seen["train"]
        share = seen.unknown / max(1, seen.pieces)
        return [
            *judge(
                "wrong_tokenizer",
                float(found != stored["identity"]),
                f"the vocabulary in the directory has {self._tokenizer.vocab_size:,} entries and is not the "
                f"one of the manifest ({stored['size']:,} entries)",
                1,
                "every id means another piece than the one that was written",
                f"put back the vocabulary that the data was prepared with, or {_AGAIN}",
            ),
            *judge(
                "unknown_pieces",
                share,
                f"{percent(share)} of the pieces are [UNK] ({seen.unknown:,} of {seen.pieces:,})",
                seen.unknown,
                f"{percent(share)} of all training tokens say nothing; as many masks have the answer [UNK]",
                "train a vocabulary on this corpus (bertsmith vocab) and prepare the data again",
            ),
        ]

    def _of_rows(self, split: str) -> list[Finding]:
        seen, total = self._seen[split], max(1, len(self._instances[split]))
        return [
            *judge(
                "ids_beyond_vocabulary",
                len(seen.beyond) / total,
                f"{len(seen.beyond):,} instances of {split} hold an id beyond the vocabulary's "
                f"{self._tokenizer.vocab_size:,} entries",
                len(seen.beyond),
                "the embedding has no such row: training stops with an error, on some devices with a crash",
                _AGAIN,
                [self._example(split, index) for index in seen.beyond[:2]],
            ),
            *judge(
                "broken_instances",
                len(seen.broken) / total,
                f"{len(seen.broken):,} instances of {split} do not begin with [CLS] and end with [SEP], or "
                "hold [PAD] or [MASK]",
                len(seen.broken),
                "the next-sentence head reads another piece than [CLS]; masks are drawn when data is loaded",
                _AGAIN,
                [self._example(split, index) for index in seen.broken[:2]],
            ),
        ]

    def _of_pairs(self) -> list[Finding]:
        labels = np.concatenate([np.zeros(0, np.int64), *self._seen["train"].labels])
        labels = labels[labels != NO_LABEL]
        random_share = float((labels == RANDOM).mean()) if len(labels) else 0.5
        share = max(random_share, 1.0 - random_share)
        pairing = self.manifest["settings"]["pairing"]
        kind = "random" if random_share >= 0.5 else "in order"
        return judge(
            "pair_balance",
            share,
            f"{percent(share)} of the {len(labels):,} pairs ({pairing}) are {kind}",
            len(labels),
            f"answering '{kind}' every time is right in {percent(share)} of the pairs: little is learnt",
            "most documents have one sentence: mend the document boundaries (bertsmith doctor --corpus ...), "
            "or prepare --pairing full-sentences",
        )

    def _of_repetition(self) -> list[Finding]:
        train = np.array(self._seen["train"].hashes, dtype=np.uint64)
        heldout = np.array(self._seen["heldout"].hashes, dtype=np.uint64)
        repeated = np.flatnonzero(~Groups.of(train).first)
        known = np.flatnonzero(np.isin(heldout, train))
        passes = self.manifest["settings"]["passes"]
        reason = f" (the corpus was paired {passes} times, so some are meant)" if passes > 1 else ""
        share = len(repeated) / max(1, len(train))
        return [
            *judge(
                "repeated_instances",
                share,
                f"{len(repeated):,} of {len(train):,} instances are equal to an earlier one{reason}",
                len(repeated),
                f"{percent(share)} of every epoch is text that was seen before, and learnt by heart",
                "find the repetition in the corpus: bertsmith doctor --corpus ...",
                [self._example("train", index) for index in repeated[:2].tolist()],
            ),
            *judge(
                "heldout_in_training",
                len(known) / max(1, len(heldout)),
                f"{len(known):,} of {len(heldout):,} held-out instances are in the training data as well",
                len(known),
                "the held-out loss is better than on new text, and over-fitting stays unseen",
                "the corpus holds documents twice: bertsmith doctor --corpus ... names them",
                [self._example("heldout", index) for index in known[:2].tolist()],
            ),
        ]

    def _of_sizes(self) -> list[Finding]:
        lengths = np.concatenate([np.zeros(0, np.int64), *self._seen["train"].lengths])
        seq_len = self._instances["train"].seq_len
        short = int((4 * lengths < seq_len).sum())
        return [
            *judge(
                "short_instances",
                short / max(1, len(lengths)),
                f"{short:,} of {len(lengths):,} instances fill less than a quarter of {seq_len} pieces",
                short,
                "late positions and long contexts are hardly trained",
                "join what belongs together into one document, or prepare --pairing full-sentences",
            ),
            *judge(
                "no_heldout",
                float(len(self._instances["heldout"]) == 0),
                "no instance is held out",
                1,
                "nobody can see whether the model learns language or its training text",
                "prepare --heldout 0.01 (of more documents, if there were too few)",
            ),
        ]

    def _example(self, split: str, index: int) -> Example:
        ids = self._instances[split].example(index).ids
        known = [int(id) for id in ids[:40] if id < self._tokenizer.vocab_size]
        return Example(f"{split} instance {index}", excerpt(self._tokenizer.decode(known)))
