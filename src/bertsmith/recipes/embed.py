"""Write a vector for each text of a file, as an array that ``numpy.load`` reads.

The array grows while the file is read, so that neither has to fit into memory, and appears whole or not at
all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith import files, predictor
from bertsmith.data.arrays import RowsFile
from bertsmith.device import keep_freed_memory
from bertsmith.errors import InputError
from bertsmith.recipes.embed_config import MISSING_VECTORS, EmbedConfig
from bertsmith.tasks.rows import Columns, Row, find_columns, iterate_rows
from bertsmith.tasks.tables import open_table

ROWS_AT_ONCE = 4096


def embed(config: EmbedConfig) -> dict[str, Any]:
    """Embed every row.

    Returns:
        How many rows there are, were cut or had no text, and the shape that was written.

    Raises:
        InputError: a setting, a file or a column is wrong, or a row has no text under "error".
    """
    _check(config)
    keep_freed_memory()
    model = predictor.load(
        config.model, config.precision, config.batch_tokens, config.threads, config.quantize
    )
    layer = int(config.layers) if re.fullmatch(r"-?\d+", config.layers) else config.layers
    width = model.embed([], config.pooling, layer).vectors.shape[1]  # refuses before anything is read
    counts = {"rows": 0, "truncated_rows": 0, "rows_without_text": 0}
    with files.atomic_file(Path(config.out)) as temporary, RowsFile(temporary, width) as array:
        rows = _rows(model, config)
        while chunk := list(islice(rows, ROWS_AT_ONCE)):
            texts = [_text(row) for row in chunk if not row.missing]
            found = model.embed(texts, config.pooling, layer, config.normalize)
            array.append(_side_by_side(chunk, found.vectors, config))
            counts["rows"] += len(chunk)
            counts["truncated_rows"] += sum(found.truncated)
            counts["rows_without_text"] += len(chunk) - len(texts)
    return {**counts, "dimensions": width, "out": config.out}


def _check(config: EmbedConfig) -> None:
    out = Path(config.out)
    if out.suffix != ".npy":
        raise InputError(f"--out {out}: the name has to end in .npy")
    if config.missing not in MISSING_VECTORS:
        raise InputError(f"missing is {config.missing!r}; take one of {', '.join(MISSING_VECTORS)}")
    files.require_no_directory(out)
    if out.resolve() == Path(config.input).resolve():
        raise InputError(f"--out {out} is the input, which would be lost; choose another file")


def _rows(model: predictor.Predictor, config: EmbedConfig) -> Iterator[Row]:
    task = model.bundle.task or {}
    # What an embedding model was trained on were pairs of texts, each embedded by itself.
    is_single = task.get("head") == "embedding"
    stored = None if is_single else task.get("columns")
    table = open_table(config.input)
    wanted = {"text": config.text, "second_text": config.second_text, "label": None}
    is_open = config.text is None and not (is_single and config.second_text is None)
    pair = None if is_open else config.second_text is not None
    found = find_columns(table, Columns(**stored) if stored else None, wanted, pair)
    return iterate_rows(table, Columns(found.text, found.second_text))


def _text(row: Row) -> predictor.Text:
    first, second = row.texts
    return first if second is None else (first, second)


def _side_by_side(rows: list[Row], vectors: NDArray[np.float32], config: EmbedConfig) -> NDArray[np.float32]:
    """Return a vector for each row, of nan where it has no text.

    Raises:
        InputError: a row has no text under "error".
    """
    lacking = [row for row in rows if row.missing]
    if not lacking:
        return vectors
    if config.missing == "error":
        raise InputError(
            f"{config.input}, line {lacking[0].line}: no {' and no '.join(lacking[0].missing)}; mend it, or "
            "--missing nan"
        )
    result = np.full((len(rows), vectors.shape[1]), np.nan, dtype=np.float32)
    result[[not row.missing for row in rows]] = vectors
    return result
