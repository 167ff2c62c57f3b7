"""TensorFlow's checkpoint files: those that TensorFlow wrote, those of a plain writer, and broken ones."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from bertsmith.errors import InputError
from bertsmith.interop.tensor_bundle import TensorBundle, find_prefix, is_old_checkpoint
from tests.interop.tensor_bundle_writer import entry, number_field, table, write_checkpoint

REAL = Path(__file__).parent / "original" / "bert_model.ckpt"


@pytest.fixture
def tensors():
    draw = np.random.default_rng(0)
    shapes = [(3, 4), (5,), (), (2, 3, 2), (0, 4), (40, 30)]
    names = [f"bert/layer_{place}/kernel" for place in range(20)]
    return {
        name: draw.normal(size=shapes[place % len(shapes)]).astype(np.float32)
        for place, name in enumerate(names)
    }


@pytest.mark.parametrize("shards", [1, 3])
def test_what_was_written_is_read(tensors, tmp_path, shards):
    write_checkpoint(tmp_path / "model.ckpt-7", tensors, shards)
    bundle = TensorBundle(tmp_path / "model.ckpt-7")
    assert bundle.entries.keys() == tensors.keys()
    for name, values in tensors.items():
        assert np.array_equal(bundle.read(name), values)
        assert bundle.read(name).shape == values.shape


def test_a_checkpoint_of_tensorflow_is_read_whole():
    """Every tensor of it has a sum that TensorFlow computed."""
    bundle = TensorBundle(REAL)
    floats = [name for name in bundle.entries if name != "global_step"]
    assert len(floats) == 46 * 3
    assert all(
        np.array_equal(bundle.read(name), np.ones_like(bundle.read(name)))
        for name in floats
        if "/adam_" in name
    )
    assert bundle.read("bert/embeddings/word_embeddings").shape == (30, 8)
    with pytest.raises(InputError, match="global_step is of type number 9, expected floating point"):
        bundle.read("global_step")


def test_other_types_of_numbers_become_float32(tmp_path):
    values = np.array([1.5, -2.0, 3e4, 0.0])
    stored = {"half": values.astype(np.float16), "double": values.astype(np.float64)}
    write_checkpoint(tmp_path / "m", stored)
    bundle = TensorBundle(tmp_path / "m")
    assert all(np.array_equal(bundle.read(name), values.astype(np.float32)) for name in stored)
    data = (values.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()
    (tmp_path / "b.index").write_bytes(
        table([(b"", number_field(1, 1)), (b"brain", entry(14, (4,), 0, 0, data))])
    )
    (tmp_path / "b.data-00000-of-00001").write_bytes(data)
    assert np.array_equal(TensorBundle(tmp_path / "b").read("brain"), np.float32([1.5, -2.0, 29952.0, 0.0]))


def test_a_changed_byte_anywhere_is_refused(tensors, tmp_path):
    write_checkpoint(tmp_path / "m", tensors)
    index, data = tmp_path / "m.index", tmp_path / "m.data-00000-of-00001"
    whole = index.read_bytes(), data.read_bytes()
    for path, content, places in ((index, whole[0], (3, 200, -2)), (data, whole[1], (0, 77, -1))):
        for place in places:
            changed = bytearray(content)
            changed[place] ^= 0x10
            path.write_bytes(changed)
            with pytest.raises(InputError, match="copy it again") as caught:
                bundle = TensorBundle(tmp_path / "m")
                for name in bundle.entries:
                    bundle.read(name)
            assert "\n" not in str(caught.value)
        path.write_bytes(content)


@pytest.mark.parametrize("kept", [0, 10, 48, 300, -1])
def test_a_cut_index_is_refused(tensors, tmp_path, kept):
    write_checkpoint(tmp_path / "m", tensors)
    index = tmp_path / "m.index"
    index.write_bytes(index.read_bytes()[:kept])
    with pytest.raises(InputError, match=r"m\.index: not a whole index"):
        TensorBundle(tmp_path / "m")


def test_missing_and_cut_data_is_refused(tensors, tmp_path):
    write_checkpoint(tmp_path / "m", tensors, shards=2)
    path = tmp_path / "m.data-00001-of-00002"
    name = sorted(tensors)[-1]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match="00001-of-00002: the bytes of"):
        TensorBundle(tmp_path / "m").read(name)
    path.unlink()
    with pytest.raises(InputError, match="00001-of-00002: no such file"):
        TensorBundle(tmp_path / "m").read(name)


@pytest.mark.parametrize(
    "options, message", [({"big_endian": True}, "big-endian"), ({"kind": 1}, "it is compressed")]
)
def test_forms_that_are_not_read_say_so(tensors, tmp_path, options, message):
    write_checkpoint(tmp_path / "m", tensors, **options)
    with pytest.raises(InputError, match=message):
        TensorBundle(tmp_path / "m")


def test_a_tensor_in_parts_is_refused(tmp_path):
    pairs = [(b"", number_field(1, 1)), (b"w", entry(1, (4,), 0, 0, b"", sliced=True))]
    (tmp_path / "m.index").write_bytes(table(pairs))
    with pytest.raises(InputError, match="w is stored in parts"):
        TensorBundle(tmp_path / "m").read("w")


def test_the_prefix_is_found_from_any_file(tensors, tmp_path):
    prefix = tmp_path / "model.ckpt-12"
    write_checkpoint(prefix, tensors)
    (tmp_path / "model.ckpt-12.meta").write_bytes(b"graph")
    given = ["", ".index", ".meta", ".data-00000-of-00001"]
    assert {find_prefix(prefix.with_name(prefix.name + ending)) for ending in given} == {prefix}
    assert find_prefix(tmp_path) == prefix
    assert find_prefix(tmp_path / "other") is None
    assert find_prefix(tmp_path / "nowhere" / "model.ckpt") is None


def test_of_several_checkpoints_the_named_one_counts(tensors, tmp_path):
    for step in (5, 10):
        write_checkpoint(tmp_path / f"model.ckpt-{step}", tensors)
    with pytest.raises(InputError, match=r"several checkpoints \(model.ckpt-10, model.ckpt-5\)"):
        find_prefix(tmp_path)
    (tmp_path / "checkpoint").write_text(
        'model_checkpoint_path: "/gone/model.ckpt-5"\nall_model_checkpoint_paths: "/gone/model.ckpt-10"\n'
    )
    assert find_prefix(tmp_path) == tmp_path / "model.ckpt-5"


def test_a_table_that_is_the_checkpoint_itself_is_known(tensors, tmp_path):
    write_checkpoint(tmp_path / "m", tensors)
    shutil.copy(tmp_path / "m.index", tmp_path / "old.ckpt")
    assert is_old_checkpoint(tmp_path / "old.ckpt")
    assert not is_old_checkpoint(tmp_path / "m.data-00000-of-00001")
    assert not is_old_checkpoint(tmp_path)
