"""Stage one: blocks of text become files of ids, whatever is killed in between; then flat files."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertsmith.data.encoded import EncodingJob, encode_files, read_blocks, read_record
from bertsmith.data.flat import join, open_documents, open_sources, read_counts
from bertsmith.data.pairing import Documents
from bertsmith.text.config import CorpusConfig, TokenizerConfig
from bertsmith.text.corpus import CorpusCounts, read_documents
from bertsmith.text.tokenizer import Tokenizer

WORDS = ["red", "blue", "one", "two", "three", "."]
PLAIN = CorpusConfig(sentences="line", prose_only=False)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS], TokenizerConfig())


def job_of(tokenizer: Tokenizer, block_bytes: int = 1 << 19, **settings: Any) -> EncodingJob:
    base = {"sentences": "line", "prose_only": False}
    return EncodingJob(tokenizer, CorpusConfig(**{**base, **settings}), "tokenizers", block_bytes)


def encode(paths: list[Path], job: EncodingJob, directory: Path, workers: int = 1) -> Documents:
    told: list[tuple[int, int]] = []
    encode_files(list(enumerate(paths)), job, directory / "encoded", workers, lambda *now: told.append(now))
    join(directory / "encoded", list(range(len(paths))), directory / "flat")
    counts = read_counts(directory / "flat").corpus
    assert sum(characters for characters, _ in told) == counts.characters
    assert [read for _, read in told] == sorted(read for _, read in told)
    return open_documents(directory / "flat", job.tokenizer.vocab_size)


def text_of(number: int, seed: int = 0) -> str:
    draw = np.random.default_rng(seed)
    documents = [
        "\n".join(" ".join(draw.choice(WORDS, draw.integers(1, 6))) for _ in range(draw.integers(1, 5)))
        for _ in range(number)
    ]
    return "\n\n".join(documents) + "\n"


def test_documents_become_flat_ids(tokenizer, tmp_path) -> None:
    (tmp_path / "a.txt").write_text("red one\n\u200b\nred two .\n\n\u200b\n\nblue\n")
    (tmp_path / "b.txt").write_text("three\r\n")
    documents = encode([tmp_path / "a.txt", tmp_path / "b.txt"], job_of(tokenizer), tmp_path)
    assert documents.ids.tolist() == [5, 7, 5, 8, 10, 6, 9]
    assert documents.ids.dtype == np.uint16
    assert documents.sentence_starts.tolist() == [0, 2, 5, 6, 7]
    assert documents.document_starts.tolist() == [0, 2, 3, 4]
    assert open_sources(tmp_path / "flat").tolist() == [0, 0, 1]
    assert documents.bounds(1) == [5, 6]
    assert documents.at(np.arange(7)).tolist() == [0, 0, 0, 0, 0, 1, 2]
    counts = read_counts(tmp_path / "flat")
    assert (counts.documents, counts.corpus.sentences, counts.empty_documents, counts.pieces) == (3, 6, 1, 7)
    assert (counts.corpus.files, counts.corpus.crlf_files) == (2, 1)


@pytest.mark.parametrize("workers", [1, 2])
def test_many_blocks_make_the_same_files_as_one(tokenizer, tmp_path, workers) -> None:
    (tmp_path / "a.txt").write_text(text_of(40).replace("\n", "\r\n"))
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress((text_of(40, 1) + "x\ufeff\n" + text_of(9)).encode()))
    paths = [tmp_path / "a.txt", tmp_path / "b.txt.gz"]
    documents = encode(paths, job_of(tokenizer, 60), tmp_path, workers)
    counts = CorpusCounts()
    texts = list(read_documents(paths, PLAIN, counts))
    expected = Documents.from_lists([tokenizer.encode_batch(document) for document in texts])
    np.testing.assert_array_equal(documents.ids, expected.ids)
    np.testing.assert_array_equal(documents.sentence_starts, expected.sentence_starts)
    np.testing.assert_array_equal(documents.document_starts, expected.document_starts)
    np.testing.assert_array_equal(documents.chosen, expected.chosen)
    counts.sentences = sum(map(len, texts))
    assert read_counts(tmp_path / "flat").corpus.to_dict() == counts.to_dict()
    assert counts.repeated_lines > 0


def test_nothing_at_all_is_encoded_to_nothing(tokenizer, tmp_path) -> None:
    (tmp_path / "a.txt").write_text("\n\n")
    assert len(encode([tmp_path / "a.txt"], job_of(tokenizer), tmp_path)) == 0
    assert read_counts(tmp_path / "flat").documents == 0


def test_literal_special_tokens_stay_text(tokenizer, tmp_path) -> None:
    (tmp_path / "a.txt").write_text("red [SEP] blue [CLS]\n")
    documents = encode([tmp_path / "a.txt"], job_of(tokenizer), tmp_path)
    assert not set(documents.ids.tolist()) & {0, 2, 3, 4}


def test_what_is_whole_is_not_encoded_again(tokenizer, tmp_path) -> None:
    for name, seed in (("a.txt", 0), ("b.txt", 1)):
        (tmp_path / name).write_text(text_of(40, seed))
    paths = [tmp_path / "a.txt", tmp_path / "b.txt"]
    job, encoded = job_of(tokenizer, 200), tmp_path / "encoded"
    encode_files(list(enumerate(paths)), job, encoded, 1, lambda *_: None)
    blocks = sorted(encoded.glob("*/*.npz"))
    assert len(blocks) > 8
    before = {path: path.read_bytes() for path in blocks}
    times = {path: path.stat().st_mtime_ns for path in blocks}
    record = (encoded / "000001.json").read_bytes()
    (encoded / "000001.json").unlink()  # as if killed in the second file
    gone, torn = [path for path in blocks if path.parent.name == "000001"][1:3]
    gone.unlink()
    torn.write_bytes(before[torn][:-40])
    paths[0].write_text("changed, but nobody reads it: the file is done\n")
    done: list[int] = []
    encode_files(list(enumerate(paths)), job, encoded, 1, lambda characters, _: done.append(characters))
    assert len(done) == 2
    assert {path: path.read_bytes() for path in blocks} == before
    assert {path for path in blocks if path.stat().st_mtime_ns != times[path]} == {gone, torn}
    assert (encoded / "000001.json").read_bytes() == record
    found = read_record(encoded, 1)
    assert found is not None
    assert found["blocks"] == len(list(read_blocks(encoded, 1)))


def test_the_blocks_are_removed_when_the_flat_files_are_whole(tokenizer, tmp_path) -> None:
    (tmp_path / "a.txt").write_text(text_of(40))
    (tmp_path / "flat.tmp").mkdir()  # of a killed run
    (tmp_path / "flat.tmp" / "rest").write_text("")
    encode([tmp_path / "a.txt"], job_of(tokenizer, 200), tmp_path)
    assert not list((tmp_path / "encoded").glob("*/*.npz"))
    assert sorted(path.name for path in (tmp_path / "flat").iterdir()) == [
        "counts.json", "document_sources", "document_starts", "ids", "sentence_starts",
    ]  # fmt: skip
