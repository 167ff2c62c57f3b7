"""Filling masks by the command line's function."""

from __future__ import annotations

from pathlib import Path

import pytest

from bertsmith import predictor
from bertsmith.errors import InputError
from bertsmith.recipes.config import FillConfig
from bertsmith.recipes.fill import fill


def test_each_mask_gets_its_candidates(model: Path) -> None:
    result = fill(FillConfig("good [MASK] worda [MASK]", str(model), top=3))
    expected = predictor.load(model).fill(["good [MASK] worda [MASK]"], top=3)[0]
    assert result["text"] == expected.text
    assert [[candidate["token"] for candidate in mask] for mask in result["masks"]] == [
        [candidate.token for candidate in mask] for mask in expected.masks
    ]
    assert [len(mask) for mask in result["masks"]] == [3, 3]
    for mask in result["masks"]:
        shares = [candidate["probability"] for candidate in mask]
        assert shares == sorted(shares, reverse=True)
        assert 0 < sum(shares) < 1
    assert result["truncated"] is False


def test_a_text_without_mask_and_a_model_without_head_are_refused(model: Path, minilm_path: Path) -> None:
    with pytest.raises(InputError, match=r"has no \[MASK\]: 'good'"):
        fill(FillConfig("good", str(model)))
    with pytest.raises(InputError, match="no masked language model head; it can embed, similarity"):
        fill(FillConfig("good [MASK]", str(minilm_path)))
