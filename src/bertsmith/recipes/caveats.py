"""What a reader of a fine-tuning's figures has to know: for its model card and its report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def caveats(figures: Mapping[str, Any]) -> list[str]:
    """Return sentences, the weightiest first.

    Args:
        figures: content of metrics.json; what is not in it is not spoken of.
    """
    return [*_of_runs(figures), *_of_data(figures)]


def _of_runs(figures: Mapping[str, Any]) -> Iterator[str]:
    for failed in figures.get("failed_runs") or []:
        settings = "".join(f", {name} {value}" for name, value in (failed.get("settings") or {}).items())
        after = failed.get("replaced_by")
        replaced = "" if after is None else f"; replaced by seed {after}"
        yield f"Seed {failed.get('seed')}{settings} failed: {failed.get('why')}{replaced}."
    seeds = figures.get("seeds") or []
    if len(seeds) == 1:
        yield "One seed: how much results differ by chance alone is not known; --seeds 5 tells."
    if seeds:
        yield (
            "Epoch and seed were chosen on the dev rows that are reported: expect a little less on other "
            "rows of the same kind, and perhaps much less on other kinds of text."
        )


def _of_data(figures: Mapping[str, Any]) -> Iterator[str]:
    partial = [side for side, is_part in (figures.get("partial") or {}).items() if is_part]
    if partial:
        names = " and ".join(partial)
        yield f"Only a part of the {names} rows was there: all may give other figures."
    if figures.get("dev_source") not in (None, "dev file"):
        yield f"Dev is {figures['dev_source']}."
    documents = (figures.get("dev_details") or {}).get("documents")
    if documents is not None and documents < 1000:
        yield f"Dev has {documents:,} texts to choose from: to be found among many is harder."
    for side, cut in (figures.get("truncated") or {}).items():
        if cut:
            rows = rows_of(figures, side)
            of = f" of {rows:,}" if rows else ""
            yield f"{cut:,}{of} {side} rows are longer than the model reads and were cut."
    for side, missing in (figures.get("missing_rows") or {}).items():
        if missing:
            yield f"{missing:,} {side} rows lack text or label and were left out."


def rows_of(figures: Mapping[str, Any], split: str) -> int | None:
    """Return how many rows of a split were used: "train", "dev" or a further dev split."""
    found = figures.get(f"{split}_rows") or (figures.get("other_dev_rows") or {}).get(split)
    return found if isinstance(found, int) else None
