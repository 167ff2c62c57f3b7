"""The verb embed: the array's rows are the file's, whatever the form of the file."""

from __future__ import annotations

import gzip
import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertsmith import cli, predictor
from bertsmith.errors import InputError
from bertsmith.recipes import embed as recipe
from bertsmith.recipes.embed import embed
from bertsmith.recipes.embed_config import EmbedConfig
from tests.recipes.tiny import save_model

TEXTS = ["so good", "bad \u4e2d\u6587 worda \U0001f600", "bad " * 90, "fine \0 x", "worda"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("models") / "model")


def run(model: Path, file: Path | str, out: Path, **settings: Any) -> tuple[dict[str, Any], np.ndarray]:
    summary = embed(EmbedConfig(str(model), str(file), str(out), **settings))
    return summary, np.load(out)


@pytest.mark.parametrize("layers", ["last", "second-to-last", "embeddings", "-2", "0"])
@pytest.mark.parametrize("pooling", [None, "max", "cls"])
def test_rows_are_the_predictors_vectors(model: Path, tmp_path: Path, layers: str, pooling: str) -> None:
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(TEXTS), encoding="utf-8")
    summary, array = run(model, file, tmp_path / "v.npy", layers=layers, pooling=pooling)
    layer = int(layers) if layers.lstrip("-").isdigit() else layers
    expected = predictor.load(model).embed(TEXTS, pooling, layer).vectors
    assert array.dtype == np.float32
    np.testing.assert_array_equal(array, expected)
    assert summary == {
        "rows": 5,
        "truncated_rows": 1,
        "rows_without_text": 0,
        "dimensions": 32,
        "out": str(tmp_path / "v.npy"),
    }


def test_every_form_of_file_gives_the_same_array(model: Path, tmp_path: Path, monkeypatch: Any) -> None:
    texts = [text for text in TEXTS if "\0" not in text]
    lines = "\ufeff" + "\r\n".join(texts) + "\r\n"
    (tmp_path / "a.txt").write_bytes(lines.encode())
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress("\n".join(texts).encode()))
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"id": 1, "text": text}) + "\n" for text in texts))
    (tmp_path / "a.csv").write_text("id,text\n" + "".join(f'1,"{text}"\n' for text in texts), "utf-8")
    arrays = [run(model, tmp_path / name, tmp_path / "v.npy")[1] for name in ("a.txt", "a.jsonl", "a.csv")]
    arrays.append(run(model, tmp_path / "a.txt.gz", tmp_path / "v.npy")[1])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(texts).encode())))
    arrays.append(run(model, "-", tmp_path / "v.npy")[1])
    for array in arrays:
        np.testing.assert_array_equal(array, arrays[0])


def test_chunks_leave_no_trace(model: Path, tmp_path: Path, monkeypatch: Any) -> None:
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(TEXTS * 5), encoding="utf-8")
    whole = run(model, file, tmp_path / "v.npy")[1]
    monkeypatch.setattr(recipe, "ROWS_AT_ONCE", 3)
    parts = run(model, file, tmp_path / "v.npy")[1]
    assert whole.shape == (25, 32)
    np.testing.assert_allclose(parts, whole, atol=1e-5)


def test_pairs_and_normalized_vectors(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "pairs.tsv"
    file.write_text("sentence1\tsentence2\nso\tbad\ngood fine\tbad\n")
    array = run(model, file, tmp_path / "v.npy", normalize=True)[1]
    expected = predictor.load(model).embed([("so", "bad"), ("good fine", "bad")], normalize=True).vectors
    np.testing.assert_array_equal(array, expected)
    np.testing.assert_allclose(np.linalg.norm(array, axis=1), 1, atol=1e-6)
    one = run(model, file, tmp_path / "v.npy", text="sentence2")[1]
    np.testing.assert_array_equal(one, predictor.load(model).embed(["bad", "bad"]).vectors)


def test_a_row_without_text_stops_or_is_nan(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "texts.txt"
    file.write_text("so\n\nbad\n")
    out = tmp_path / "v.npy"
    with pytest.raises(InputError, match=r"line 2: no text; mend it, or --missing nan"):
        run(model, file, out)
    assert [path.name for path in tmp_path.iterdir()] == ["texts.txt"], "nothing half written"
    summary, array = run(model, file, out, missing="nan")
    assert summary["rows_without_text"] == 1
    assert np.isnan(array).all(axis=1).tolist() == [False, True, False]
    np.testing.assert_allclose(array[[0, 2]], predictor.load(model).embed(["so", "bad"]).vectors, atol=1e-5)


def test_an_empty_file_has_no_rows(model: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("")
    summary, array = run(model, tmp_path / "texts.txt", tmp_path / "v.npy")
    assert (array.shape, summary["rows"]) == ((0, 32), 0)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"out": "v.txt"}, "has to end in .npy"),
        ({"missing": "skip"}, "take one of error, nan"),
        ({"pooling": "sum"}, "take one of mean, max, cls"),
        ({"layers": "weighted-all"}, "only a head on frozen features learns"),
        ({"layers": "3"}, "layer is 3"),
        ({"quantize": "int4"}, "take int8"),
        ({"quantize": "int8", "precision": "bfloat16"}, "precision bfloat16 would be ignored"),
        ({"text": "body"}, "no column 'body'"),
        ({"batch_tokens": 0}, "batch-tokens is 0"),
    ],
)
def test_wrong_settings_leave_nothing_behind(
    model: Path, tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    (tmp_path / "texts.txt").write_text("so\n")
    settings = {"out": "v.npy", **settings}
    settings["out"] = str(tmp_path / settings["out"])
    with pytest.raises(InputError, match=message):
        embed(EmbedConfig(str(model), str(tmp_path / "texts.txt"), **settings))
    assert [path.name for path in tmp_path.iterdir()] == ["texts.txt"]


def test_the_command_line(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "texts.txt").write_text("so\nbad\n")
    out = str(tmp_path / "v.npy")
    command = ["embed", "--model", str(model), "--input", str(tmp_path / "texts.txt"), "--out", out]
    assert cli.run([*command, "--layers", "last", "--normalize", "True", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["dimensions"] == 32
    np.testing.assert_allclose(np.linalg.norm(np.load(out), axis=1), 1, atol=1e-6)
    assert cli.run([*command[:-1], str(tmp_path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
