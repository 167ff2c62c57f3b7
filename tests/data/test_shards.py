"""Shards: written in order, readable by numpy alone, refused when broken."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertsmith.data.shards import Instances, ShardWriter, id_dtype, read_manifest
from bertsmith.errors import InputError
from tests.data.conftest import rows_of, write_split

SEQUENCES = [[2, *range(5, 5 + n), 3] for n in (3, 1, 9, 30, 2, 2, 7, 1, 1, 12)]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_split(
        tmp_path / "data",
        rows_of(SEQUENCES, [2] * 10, [0, 1, -1, 0, 1, 0, 0, 1, 1, -1], range(10)),
        seq_len=40,
        shard_pieces=20,
    )
    return tmp_path / "data"


def test_instances_come_back_from_several_shards(data) -> None:
    instances = Instances.open(data, "train", verify=True)
    assert len(instances) == 10
    assert len(list((data / "train").glob("ids-*.npy"))) > 3
    for index, sequence in enumerate(SEQUENCES):
        example = instances.example(index)
        assert example.ids.tolist() == sequence
        assert example.ids.dtype == np.int64
        assert example.second_start == 2
    order = np.array([7, 0, 9, 3, 3, 1])
    assert instances.lengths(order).tolist() == [len(SEQUENCES[index]) for index in order]
    assert instances.labels(order).tolist() == [1, 0, -1, 0, 0, 1]
    assert instances.sources(order).tolist() == order.tolist()
    assert instances.sources(order).dtype == np.int64
    assert instances.second_starts(order).tolist() == [2] * 6
    assert [row.tolist() for row in instances.rows(order)] == [SEQUENCES[index] for index in order]
    with pytest.raises(AssertionError):
        instances.example(10)


def test_data_without_sources_is_all_one_source(data) -> None:
    manifest = json.loads((data / "manifest.json").read_text())
    for shard in manifest["splits"]["train"]["shards"]:
        (data / "train" / shard["files"].pop("sources")["file"]).unlink()
    (data / "manifest.json").write_text(json.dumps(manifest))
    instances = Instances.open(data, "train", verify=True)
    assert instances.source_names == ["all"]
    assert instances.sources(np.arange(10)).tolist() == [0] * 10
    assert [row.tolist() for row in instances.rows(np.arange(10))] == SEQUENCES


def test_anyone_can_read_the_arrays_with_numpy(data) -> None:
    found = []
    for path in sorted((data / "train").glob("ids-*.npy")):
        ids = np.load(path)
        offsets = np.load(path.with_name(path.name.replace("ids", "offsets")))
        assert ids.dtype == np.uint16
        found += [ids[a:b].tolist() for a, b in pairwise(offsets)]
    assert found == SEQUENCES


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 30), max_size=12), max_size=6), st.integers(1, 60), st.integers(0, 10**9)
)
def test_shards_do_not_depend_on_how_rows_arrive(tmp_path_factory, batches, shard_pieces, seed) -> None:
    draw = np.random.default_rng(seed)
    sequences = [[draw.integers(0, 999, n).tolist() for n in batch] for batch in batches]
    everything = [sequence for batch in sequences for sequence in batch]
    entries = []
    for name, parts in (("batches", sequences), ("one", [everything])):
        writer = ShardWriter(tmp_path_factory.mktemp(name) / "train", np.dtype(np.uint16), shard_pieces)
        for part in parts:
            writer.append(rows_of(part, [1] * len(part), [0] * len(part)))
        entries.append(writer.close())
    assert entries[0] == entries[1]
    assert sum(entry["instances"] for entry in entries[0]) == len(everything)
    for entry in entries[0]:
        assert entry["pieces"] <= max([shard_pieces, *map(len, everything)])


def test_ids_take_two_bytes_where_the_vocabulary_fits() -> None:
    assert id_dtype(65536) == np.uint16
    assert id_dtype(65537) == np.int32


def test_a_split_without_instances_opens(tmp_path) -> None:
    write_split(tmp_path / "data", rows_of([], [], []), 16)
    assert len(Instances.open(tmp_path / "data", "train", verify=True)) == 0


@pytest.mark.parametrize("name", ["ids", "offsets", "second_starts", "labels", "sources"])
def test_a_cut_or_missing_file_is_named(data, name) -> None:
    path = data / "train" / f"{name}-00001.npy"
    whole = path.read_bytes()
    path.write_bytes(whole[:-2])
    with pytest.raises(InputError, match=f"{name}-00001.npy.*cut short"):
        Instances.open(data, "train")
    path.unlink()
    with pytest.raises(InputError, match=f"{name}-00001.npy: missing"):
        Instances.open(data, "train")


def test_a_changed_byte_is_found_on_request(data) -> None:
    path = data / "train" / "ids-00000.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    Instances.open(data, "train")
    with pytest.raises(InputError, match=r"ids-00000.npy: its SHA-256"):
        Instances.open(data, "train", verify=True)


def test_a_foreign_array_of_the_same_size_is_refused(data) -> None:
    path = data / "train" / "ids-00000.npy"
    array = np.load(path)
    np.save(path, array.view(np.int16))
    with pytest.raises(InputError, match=r"ids-00000.npy: int16"):
        Instances.open(data, "train")
    path.write_bytes(b"x" * path.stat().st_size)
    with pytest.raises(InputError, match=r"ids-00000.npy: no .npy array"):
        Instances.open(data, "train")


def test_what_is_no_data_directory_is_refused(data, tmp_path) -> None:
    with pytest.raises(InputError, match=r"no manifest\.json"):
        read_manifest(tmp_path)
    manifest = json.loads((data / "manifest.json").read_text())
    for change, message in (
        ({"format": "other"}, "not the manifest of prepared data"),
        ({"format_version": 99}, "format version 99"),
        ({"splits": {}}, "lacks 'train'"),
        ({"splits": {"train": {"shards": [{"files": {"ids": {}}}]}}}, "lacks 'file'"),
        ({"settings": {}}, "lacks 'seq_len'"),
    ):
        (data / "manifest.json").write_text(json.dumps({**manifest, **change}))
        with pytest.raises(InputError, match=message):
            Instances.open(data, "train")
    (data / "manifest.json").write_text("{")
    with pytest.raises(InputError, match="no JSON"):
        Instances.open(data, "train")


def parts_of(numbers: range) -> list[list[list[int]]]:
    draw = np.random.default_rng(0)
    return [[draw.integers(5, 999, n).tolist() for n in draw.integers(1, 30, 25)] for _ in numbers]


def write_batches(directory: Path, journal: Path, batches: list[list[list[int]]], until: int) -> ShardWriter:
    """Append the batches that are not in the shards yet, up to a number, as a run that is then killed."""
    writer = ShardWriter(directory, np.dtype(np.uint16), 90, journal)
    for number in range(writer.next_batch, until):
        taken = writer.next_row
        batch = rows_of(batches[number], range(25), [0] * 25, [number] * 25)
        assert len(writer.append(batch)) == 25 - taken
    return writer


@pytest.mark.parametrize("stops", [[3], [1, 2, 7, 7, 9], [20]])
def test_a_writer_goes_on_after_the_last_whole_shard(tmp_path, stops) -> None:
    batches = parts_of(range(20))
    whole = write_batches(tmp_path / "whole", tmp_path / "journal-whole", batches, 20).close()
    assert len(whole) > 40
    directory, journal = tmp_path / "train", tmp_path / "journal"
    for stop in stops:
        writer = write_batches(directory, journal, batches, stop)
        assert writer.next_batch == stop
        assert 0 < len(writer.shards) < len(whole)
        (directory / f"ids-{len(writer.shards):05d}.npy").write_bytes(b"half of an array")
    writer = write_batches(directory, journal, batches, 20)
    found = sum(len(rows) for rows in writer.whole_rows())
    assert found == sum(shard["instances"] for shard in writer.shards)
    assert writer.close() == whole
    for path in (tmp_path / "whole").iterdir():
        assert (directory / path.name).read_bytes() == path.read_bytes()
    again = write_batches(directory, journal, batches, 20)
    assert again.close() == whole


def test_a_damaged_shard_is_written_again(tmp_path) -> None:
    batches = parts_of(range(6))
    directory, journal = tmp_path / "train", tmp_path / "journal"
    whole = write_batches(directory, journal, batches, 6).close()
    content = (directory / "labels-00003.npy").read_bytes()
    (directory / "labels-00003.npy").write_bytes(content[:-1] + b"\x07")
    writer = ShardWriter(directory, np.dtype(np.uint16), 90, journal)
    assert len(writer.shards) == 3
    assert write_batches(directory, journal, batches, 6).close() == whole
    assert (directory / "labels-00003.npy").read_bytes() == content
