"""Blocks of whole documents."""

from __future__ import annotations

import gzip
import hashlib
import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertsmith.text import streams
from bertsmith.text.config import CorpusConfig
from bertsmith.text.corpus import CorpusCounts, block_documents
from bertsmith.text.streams import TextBlock, TextFile

PLAIN = CorpusConfig(prose_only=False)
TEXTS = st.text(alphabet=st.sampled_from("ab\n\n\n\r \x00\u2028é"), max_size=200)


def documents(blocks: list[TextBlock], config: CorpusConfig) -> tuple[list[list[str]], dict[str, object]]:
    counts = CorpusCounts()
    found = [document for block in blocks for document in block_documents(block, config, counts)]
    counts.crlf_files = min(counts.crlf_files, 1)
    return found, counts.to_dict()


@settings(max_examples=300, deadline=None)
@given(TEXTS, st.integers(1, 60), st.integers(1, 20), st.sampled_from(["blank-line", "line"]))
def test_blocks_hold_the_same_documents_as_the_whole(
    tmp_path_factory: pytest.TempPathFactory, text: str, size: int, read_bytes: int, kind: str
) -> None:
    path = tmp_path_factory.mktemp("blocks") / "a.txt"
    path.write_bytes(text.encode())
    config = CorpusConfig(documents=kind, prose_only=False)
    with pytest.MonkeyPatch.context() as patch:
        whole = list(TextFile(path, kind == "line").blocks(1 << 20))
        patch.setattr(streams, "_READ_BYTES", read_bytes)
        file = TextFile(path, kind == "line")
        blocks = list(file.blocks(size))
    assert b"".join(block.data for block in blocks) == text.encode()
    assert documents(blocks, config) == documents(whole, config)
    for before, block in itertools.pairwise(blocks):
        assert len(before.data) >= size
        assert block.first_line == before.first_line + before.data.count(b"\n")
    with pytest.MonkeyPatch.context() as patch:  # how much is read at once changes nothing
        patch.setattr(streams, "_READ_BYTES", 7)
        assert list(TextFile(path, kind == "line").blocks(size)) == blocks
    assert (file.num_bytes, file.sha256) == (len(text.encode()), hashlib.sha256(text.encode()).hexdigest())


def test_json_lines_are_cut_at_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    lines = [f'{{"text": "number {number}"}}\n'.encode() for number in range(100)]
    path.write_bytes(gzip.compress(b"".join(lines)))
    file = TextFile(path, document_a_line=False)
    blocks = list(file.blocks(100))
    assert len(blocks) > 10
    assert documents(blocks, PLAIN)[0] == [[f"number {number}"] for number in range(100)]
    assert file.num_bytes == path.stat().st_size
    assert file.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_binary_start_is_looked_for_at_the_start_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "_READ_BYTES", 8)
    path = tmp_path / "a.txt"
    path.write_bytes(b"abcdefg\nPK\x03\x04 is how a zip begins.\n")
    assert len(list(TextFile(path, document_a_line=True).blocks(1))) == 2
