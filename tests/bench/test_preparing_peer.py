"""The peer of bench prepare pairs as the original does."""

from __future__ import annotations

import random

from bertsmith.bench.preparing_peer import pairs_of


def test_pairs_are_next_or_random_and_fit() -> None:
    documents = [
        [[1000 * number + place] * 20 for place in range(30 if number else 1)] for number in range(4)
    ]
    draw = random.Random(0)
    labels = []
    for place, sentences in enumerate(documents):
        for first, second, label in pairs_of(documents, place, draw):
            assert first
            assert second
            assert len(first) + len(second) <= 125
            assert {piece // 1000 for piece in first} == {place}
            if label == 0:
                assert {piece // 1000 for piece in second} == {place}
                assert first[-1] <= second[0]
            labels.append(label)
            assert label == 1 or len(sentences) > 1
    assert 0.3 < sum(labels) / len(labels) < 0.8
