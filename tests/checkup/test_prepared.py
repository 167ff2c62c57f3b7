"""Prepared data: healthy as it is written, and each way in which it can be spoilt."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertsmith.data.shards import Instances, Rows, ShardWriter, id_dtype
from bertsmith.errors import InputError
from bertsmith.recipes.config import PrepareConfig, VocabConfig
from bertsmith.recipes.prepare import prepare
from bertsmith.recipes.vocab import vocab
from bertsmith.text.config import TokenizerConfig
from bertsmith.text.tokenizer import SPECIAL_TOKENS, Tokenizer
from tests.checkup.texts import WORDS, findings, prose, write


def prepared(folder: Path, documents: list[list[str]], **settings: Any) -> Path:
    vocabulary = folder / "vocab"
    Tokenizer([*SPECIAL_TOKENS, ".", *dict.fromkeys(WORDS)], TokenizerConfig()).save(vocabulary)
    corpus = write(folder / "corpus.txt", documents)
    values: dict[str, Any] = {"heldout": 0.1, "workers": 1, "seq_len": 64} | settings
    prepare(PrepareConfig(corpus=[str(corpus)], vocab=str(vocabulary), out=str(folder / "data"), **values))
    return folder / "data"


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("healthy"), prose(80))


@pytest.fixture
def data(healthy: Path, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    return Path(shutil.copytree(healthy, tmp_path / "data"))


def rewrite(data: Path, split: str, examples: list[tuple[list[int], int, int]]) -> None:
    """Replace the instances of a split; each is (ids, second start, label)."""
    shutil.rmtree(data / split)
    writer = ShardWriter(data / split, id_dtype(1000))
    writer.append(
        Rows(
            np.array([id for ids, _, _ in examples for id in ids], dtype=np.uint16),
            np.cumsum([0, *(len(ids) for ids, _, _ in examples)], dtype=np.int64),
            np.array([second for _, second, _ in examples], dtype=np.int32),
            np.array([label for _, _, label in examples], dtype=np.int8),
            np.zeros(len(examples), dtype=np.uint16),
        )
    )
    manifest = json.loads((data / "manifest.json").read_text())
    manifest["splits"][split]["shards"] = writer.close()
    (data / "manifest.json").write_text(json.dumps(manifest))


def examples(data: Path, split: str = "train") -> list[tuple[list[int], int, int]]:
    instances = Instances.open(data, split)
    found = [instances.example(index) for index in range(len(instances))]
    return [(example.ids.tolist(), example.second_start, example.nsp_label) for example in found]


def test_healthy_data_has_no_finding(healthy: Path) -> None:
    assert {name: found["level"] for name, found in findings(data=str(healthy)).items()} == {}


def test_healthy_data_of_byte_level_bpe_has_no_error(tmp_path: Path) -> None:
    corpus = write(tmp_path / "corpus.txt", prose(60))
    vocab(VocabConfig([str(corpus)], str(tmp_path / "vocab" / "vocab.json"), algorithm="bpe", size=700))
    prepare(
        PrepareConfig(
            corpus=[str(corpus)],
            vocab=str(tmp_path / "vocab"),
            out=str(tmp_path / "data"),
            pairing="full-sentences",
            seq_len=64,
            heldout=0.1,
            workers=1,
        )
    )
    assert {name: found["level"] for name, found in findings(data=str(tmp_path / "data")).items()} == {}
    found = findings(corpus=[str(corpus)], vocab=str(tmp_path / "vocab"), pairing="full-sentences")
    assert set(found) == {"little_text"}


@pytest.mark.parametrize("array", ["ids", "offsets", "labels"])
def test_a_damaged_file_is_named(array: str, data: Path) -> None:
    (path,) = (data / "train").glob(f"{array}-*.npy")
    damaged = bytearray(path.read_bytes())
    damaged[-3] ^= 0x55
    path.write_bytes(damaged)
    with pytest.raises(InputError, match=rf"{path.name}: its SHA-256 is not the manifest's"):
        findings(data=str(data))


def test_ids_beyond_the_vocabulary(data: Path) -> None:
    rows = examples(data)
    size = len(SPECIAL_TOKENS) + 1 + len(dict.fromkeys(WORDS))
    rows[3][0][5] = size
    rows[4][0][5] = size - 1
    rewrite(data, "train", rows)
    found = findings(data=str(data))["ids_beyond_vocabulary"]
    assert (found["level"], found["count"]) == ("error", 1)
    assert found["examples"][0]["place"] == "train instance 3"
    assert found["remedy"].startswith("prepare the data again")


@pytest.mark.parametrize("place, id", [(0, 5), (-1, 5), (4, 0), (4, 4)])
def test_rows_that_are_no_instances(place: int, id: int, data: Path) -> None:
    rows = examples(data, "heldout")
    rows[1][0][place] = id
    rewrite(data, "heldout", rows)
    found = findings(data=str(data))["broken_instances"]
    assert (found["level"], found["count"]) == ("error", 1)
    assert found["examples"][0]["place"] == "heldout instance 1"


def test_a_foreign_vocabulary(data: Path) -> None:
    lines = (data / "vocab.txt").read_text().splitlines()
    (data / "vocab.txt").write_text("\n".join([*lines[:5], *reversed(lines[5:])]) + "\n")
    assert findings(data=str(data))["wrong_tokenizer"]["level"] == "error"


def test_pairs_of_one_kind(tmp_path: Path) -> None:
    single = [[line.split(".")[0] + "."] for document in prose(100, 3, seed=2) for line in document]
    data = prepared(tmp_path, single)
    found = findings(data=str(data))
    assert found["pair_balance"]["level"] == "error"
    assert "100 % of the" in found["pair_balance"]["what"]
    assert "random" in found["pair_balance"]["what"]


def test_repeated_instances_and_held_out_ones_in_training(data: Path) -> None:
    rows, heldout = examples(data), examples(data, "heldout")
    rewrite(data, "train", [*rows, *rows[:7], heldout[2]])
    found = findings(data=str(data))
    assert found["repeated_instances"]["count"] == 7
    assert found["repeated_instances"]["examples"][0]["place"] == f"train instance {len(rows)}"
    assert found["heldout_in_training"]["count"] == 1
    assert found["heldout_in_training"]["examples"][0]["place"] == "heldout instance 2"


def test_unknown_pieces(data: Path) -> None:
    rows = examples(data)
    for ids, _, _ in rows:
        ids[2 : 2 + len(ids) // 4] = [1] * (len(ids) // 4)
    rewrite(data, "train", rows)
    found = findings(data=str(data))["unknown_pieces"]
    assert found["level"] == "error"
    assert found["count"] == sum(ids.count(1) for ids, _, _ in rows)


def test_nothing_held_out(tmp_path: Path) -> None:
    found = findings(data=str(prepared(tmp_path, prose(30), heldout=0.0)))
    assert found["no_heldout"]["level"] == "note"


def test_short_instances(tmp_path: Path) -> None:
    documents = [[line.split(".")[0] + "."] for document in prose(100, 3, seed=2) for line in document]
    found = findings(data=str(prepared(tmp_path, documents, pairing="doc-sentences", seq_len=128)))
    assert found["short_instances"]["share"] > 0.9
