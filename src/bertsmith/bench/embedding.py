"""Speed of embedding: ours beside sentence-transformers, taking turns; and how near the vectors are.

All sides embed the same texts with the same model, from text to vectors, and get them in the same order. The
cosines are with the vectors of sentence-transformers in float32 (or, without it, ours).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith import predictor
from bertsmith.bench.turns import OURS, Contender, interleave, peer_is_installed, report
from bertsmith.device import computes_bfloat16, multiplies_int8, pick_device

Embed = Callable[[Sequence[str]], NDArray[np.float32]]
"""From texts to vectors, float32 ``(texts, hidden)``."""

PEER = "sentence-transformers float32"
REPEATS = 5
_WARMING_TEXTS = 200
_INT8_BATCH_TOKENS = 1024
"""8-bit layers make larger tensors on the way, which should stay in the cache."""


@dataclass
class Side:
    """One side of the comparison; it remembers its last vectors.

    Attributes:
        embed: from texts to vectors.
        texts: what is embedded in a turn.
        keeps_memory: see ``Contender``.
    """

    embed: Embed
    texts: Sequence[str]
    keeps_memory: bool = False
    vectors: NDArray[np.float32] | None = None

    def step(self, index: int) -> int:
        """Embed all texts, in the two turns that warm up only some; return how many."""
        texts = self.texts[:_WARMING_TEXTS] if index < 2 else self.texts
        self.vectors = self.embed(texts)
        return len(texts)


def compare(
    model: str, texts: Sequence[str], repeats: int, more: Mapping[str, Embed] | None = None
) -> dict[str, Any]:
    """Measure our precisions and every peer.

    Args:
        model: a model directory.
        texts: real sentences.
        repeats: counted turns of each side; 0: five.
        more: further peers.

    Returns:
        The result object of ``report``. Ours is bfloat16 where the processor computes in it; the other
        precisions stand under ``variants`` with their speed, int8 where the processor multiplies it.
    """
    device = pick_device()
    main = "bfloat16" if computes_bfloat16(device) else "float32"
    others = ("float32", "int8") if multiplies_int8(device) else ("float32",)
    names = {OURS: main} | {f"{OURS} {name}": name for name in others if name != main}
    models = {name: _load(model, precision) for name, precision in names.items()}
    sides = {
        name: Side(lambda chosen, ours=ours: ours.embed(chosen, normalize=True).vectors, texts, True)  # type: ignore[misc]
        for name, ours in models.items()
    }
    if peer_is_installed("sentence_transformers"):
        sides[PEER] = Side(_sentence_transformers(model, models[OURS].seq_len), texts)
    sides |= {name: Side(embed, texts) for name, embed in (more or {}).items()}
    speeds = interleave(
        {name: Contender(side.step, side.keeps_memory) for name, side in sides.items()}, repeats or REPEATS
    )
    pieces = models[OURS].count_pieces(texts)
    variants = {name: precision for name, precision in names.items() if name != OURS}
    reference = PEER if PEER in sides else f"{OURS} float32"
    return report(
        f"embedding {len(texts)} texts of {np.mean(pieces):.0f} pieces, {main}",
        {name: speed for name, speed in speeds.items() if name not in variants},
        "sentences/s",
        variants={precision: round(speeds[name], 1) for name, precision in variants.items()},
        cosines={name: _cosines(side, sides[reference]) for name, side in sides.items() if name != reference},
    )


def _load(model: str, precision: str) -> predictor.Predictor:
    if precision == "int8":
        return predictor.load(model, batch_tokens=_INT8_BATCH_TOKENS, quantize="int8")
    return predictor.load(model, precision)


def _sentence_transformers(model: str, seq_len: int) -> Embed:
    from sentence_transformers import SentenceTransformer

    peer = SentenceTransformer(model, device="cpu")
    peer.max_seq_length = seq_len
    return lambda texts: np.asarray(peer.encode(list(texts), normalize_embeddings=True))


def _cosines(side: Side, reference: Side) -> dict[str, float]:
    """Return mean and least cosine of both sides' vectors."""
    assert side.vectors is not None, "every side had its turns"
    assert reference.vectors is not None, "every side had its turns"
    products = np.sum(side.vectors.astype(np.float64) * reference.vectors, axis=1)
    lengths = np.linalg.norm(side.vectors, axis=1) * np.linalg.norm(reference.vectors, axis=1)
    cosines = products / lengths
    return {"mean": round(float(cosines.mean()), 6), "least": round(float(cosines.min()), 6)}
