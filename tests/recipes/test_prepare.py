"""The verb prepare, from text files to instances."""

from __future__ import annotations

import gzip
import json
import logging
import os
import resource
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertsmith.data.config import MaskingConfig
from bertsmith.data.loader import PretrainingLoader, fixed_batches
from bertsmith.data.shards import Instances
from bertsmith.errors import InputError
from bertsmith.files import sha256_of
from bertsmith.recipes.config import PrepareConfig
from bertsmith.recipes.prepare import prepare
from bertsmith.text.tokenizer import Tokenizer
from tests.recipes.preparing import PLAIN, SPECIALS, contents, real_settings, settings, write_vocab


@pytest.fixture
def vocab(tmp_path: Path) -> Path:
    return write_vocab(tmp_path / "vocab.txt", ["red", "blue", "one", "two", "three", "a", "b", "."])


def words_of(data: Path, split: str) -> list[tuple[list[str], list[str], int]]:
    tokenizer = Tokenizer.load(data)
    instances = Instances.open(data, split, verify=True)
    result = []
    for index in range(len(instances)):
        example = instances.example(index)
        assert example.ids[0] == tokenizer.cls_id
        assert example.ids[-1] == example.ids[example.second_start - 1] == tokenizer.sep_id
        words = [tokenizer.token(int(id)) for id in example.ids]
        middle = example.second_start
        result.append((words[1 : middle - 1], words[middle:-1], example.nsp_label))
    return result


def test_c015_one_document_is_an_error(tmp_path, vocab) -> None:
    config = settings(tmp_path, "red one\nred two\nred three\n", vocab, passes=20, seq_len=40)
    with pytest.raises(InputError, match="NSP needs at least two documents"):
        prepare(config)
    assert sorted(os.listdir(tmp_path)) == ["corpus.txt", "tokenizer_config.json", "vocab.txt"]
    summary = prepare(replace(config, pairing="sop"))
    assert summary["train"]["instances"] >= 20


def test_c015_two_documents_give_true_labels(tmp_path, vocab) -> None:
    text = "red one\nred two\nred three\n\nblue one\nblue two\n"
    summary = prepare(settings(tmp_path, text, vocab, passes=20, seq_len=40))
    rows = words_of(tmp_path / "data", "train")
    assert len(rows) == summary["train"]["instances"] >= 40
    documents = [text.split() for text in text.split("\n\n")]
    for first, second, label in rows:
        colours = [{word for word in part if word in ("red", "blue")} for part in (first, second)]
        assert [len(colour) for colour in colours] == [1, 1]
        if label == 1:
            assert colours[0] != colours[1]
        else:
            (document,) = (words for words in documents if words[0] in colours[0])
            whole = first + second
            assert any(document[at : at + len(whole)] == whole for at in range(len(document)))
    balance = summary["train"]["nsp"]
    labels = [label for _, _, label in rows]
    assert (balance["next"], balance["random"]) == (labels.count(0), labels.count(1))
    assert balance["next"] > 0


@pytest.mark.parametrize("missing", SPECIALS)
def test_c010_a_missing_special_token_stops_before_any_work(tmp_path, missing) -> None:
    vocab = tmp_path / "vocab.txt"
    vocab.write_text("\n".join(token for token in [*SPECIALS, "a", "b", "c"] if token != missing))
    config = PrepareConfig(["no-such-corpus.txt"], str(vocab), str(tmp_path / "data"))
    with pytest.raises(InputError) as caught:
        prepare(config)
    assert missing in str(caught.value)
    assert str(vocab) in str(caught.value)
    assert os.listdir(tmp_path) == ["vocab.txt"]


def test_c026_repeated_lines_are_reported_as_a_warning(tmp_path, vocab, caplog) -> None:
    lines = ["a red one ."] * 901 + [f"{'red ' * (n // 10)}{'blue ' * (n % 10)}two ." for n in range(1, 100)]
    text = "\n\n".join("\n".join(lines[start : start + 10]) for start in range(0, 1000, 10))
    with caplog.at_level(logging.WARNING):
        summary = prepare(settings(tmp_path, text, vocab))
    assert summary["corpus"]["lines"] == 1000
    assert summary["corpus"]["repeated_lines"] == 900
    assert summary["corpus"]["repeated_lines_share"] == 0.9
    assert any("90%" in message.replace(" ", "") for message in caplog.messages)
    manifest = json.loads((tmp_path / "data" / "manifest.json").read_text())
    assert manifest["corpus"]["repeated_lines_share"] == 0.9


def test_one_sentence_documents_are_reported_as_unbalanced(tmp_path, vocab, caplog) -> None:
    summary = prepare(settings(tmp_path, "red one\n\nblue one\n\nred two\n\nblue two\n", vocab))
    assert summary["train"]["nsp"]["random_share"] == 1.0
    assert any("100 % of the pairs are random" in message for message in caplog.messages)


def test_wrong_input_is_refused_with_a_reason(tmp_path, vocab) -> None:
    def message(content: str, **changes: Any) -> str:
        with pytest.raises(InputError) as caught:
            prepare(settings(tmp_path, content, vocab, **changes))
        assert not (tmp_path / "data").exists()
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "holds no text" in message("\n \n\n")
    assert "holds no text" in message("")
    dropped = message("a\tb\tc\n", text=replace(PLAIN, prose_only=True))
    assert "prose filter dropped every line" in dropped
    assert "table 1" in dropped
    assert "no visible text" in message("\u200b\n\n\u200b\n")
    assert "no instances" in message("red one\n\nblue one\n", pairing="sop")
    assert "heldout is 1.0" in message("red one\n", heldout=1.0)
    assert "workers is -1" in message("red one\n", workers=-1)
    assert f"this machine has {os.cpu_count()} processors" in message("red one\n", workers=5000)
    assert "shard-size is 1K" in message("red one\n", shard_size="1K")
    assert "'many' is no amount" in message("red one\n", shard_size="many")
    assert "encoder 'fast' is unknown" in message("red one\n", encoder="fast")
    assert "pairing 'nps' is unknown" in message("red one\n", pairing="nps")
    assert "has to name a new directory" in message("red one\n", out=".")
    assert "seq-len is 4" in message("red one\n", seq_len=4)


def test_an_existing_directory_is_kept_unless_it_is_empty(tmp_path, vocab) -> None:
    config = settings(tmp_path, "red one\nred two\n\nblue one\nblue two\n", vocab)
    (tmp_path / "data").mkdir()
    prepare(config)
    before = sha256_of(tmp_path / "data" / "manifest.json")
    with pytest.raises(InputError, match="exists already"):
        prepare(replace(config, seed=1))
    assert sha256_of(tmp_path / "data" / "manifest.json") == before
    with pytest.raises(InputError, match="exists already"):
        prepare(replace(config, out=str(vocab)))


def test_the_manifest_ties_inputs_vocabulary_and_settings(tmp_path, vocab) -> None:
    config = settings(tmp_path, "red one\nred two\n\nblue one\nblue two\n", vocab, passes=3)
    prepare(config)
    manifest = json.loads((tmp_path / "data" / "manifest.json").read_text())
    corpus = Path(config.corpus[0])
    assert manifest["inputs"] == [
        {
            "file": str(corpus),
            "source": tmp_path.name,
            "bytes": corpus.stat().st_size,
            "sha256": sha256_of(corpus),
        }
    ]
    assert manifest["sources"] == [tmp_path.name]
    stored = Tokenizer.load(tmp_path / "data")
    assert manifest["vocabulary"] == {"size": 13, "identity": stored.identity()}
    assert stored.identity() == Tokenizer.load(vocab).identity()
    assert manifest["settings"]["passes"] == 3
    assert manifest["settings"]["text"]["sentences"] == "line"
    assert manifest["bertsmith_version"]
    assert sorted(os.listdir(tmp_path / "data")) == [
        "heldout", "manifest.json", "tokenizer.json", "tokenizer_config.json", "train", "vocab.txt",
    ]  # fmt: skip


@pytest.mark.parametrize("pairing", ["nsp", "sop", "full-sentences", "doc-sentences"])
@pytest.mark.parametrize("workers", [1, 2])
def test_each_instance_knows_the_source_of_its_first_text(tmp_path, vocab, pairing, workers) -> None:
    parts = {"reds": "red one\nred two\nred three\n\n", "blues": "blue one\nblue two\nblue three\n\n"}
    for name, text in parts.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text(text * 300)
    (tmp_path / "more.txt").write_text(parts["reds"] * 300)
    config = replace(
        settings(tmp_path, "", vocab, pairing=pairing, passes=2, seq_len=16, heldout=0.1, workers=workers),
        corpus=[str(tmp_path / "reds"), str(tmp_path / "blues"), f"reds={tmp_path / 'more.txt'}"],
    )
    summary = prepare(config)
    for split in ("train", "heldout"):
        instances = Instances.open(tmp_path / "data", split, verify=True)
        assert instances.source_names == ["reds", "blues"]
        sources = instances.sources(np.arange(len(instances)))
        for (first, _, _), source in zip(words_of(tmp_path / "data", split), sources, strict=True):
            assert first[0] == ["red", "blue"][source]
        counts = np.bincount(sources, minlength=2).tolist()
        assert summary[split]["sources"] == dict(zip(["reds", "blues"], counts, strict=True))
        assert min(counts) > 0


# --- on real text ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real(shared_data, tmp_path_factory) -> PrepareConfig:
    return real_settings(shared_data, tmp_path_factory.mktemp("real"))


@pytest.fixture(scope="module")
def real_data(real) -> Path:
    summary = prepare(real)
    assert summary["corpus"]["documents"] == 197
    assert summary["train"]["documents"] == 187
    assert summary["heldout"]["documents"] == 10
    assert 0.5 < summary["train"]["nsp"]["random_share"] < 0.6
    assert summary["train"]["instances"] == sum(summary["train"]["lengths"].values())
    return Path(real.out)


@pytest.mark.parametrize("workers", [2, 3])
def test_the_number_of_workers_changes_no_byte(real, real_data, workers, tmp_path) -> None:
    prepare(replace(real, out=str(tmp_path / "data"), workers=workers))
    assert contents(tmp_path / "data") == contents(real_data)


def test_the_encoder_changes_no_byte(real, real_data, tmp_path) -> None:
    for encoder in ("tokenizers", "nanotoken"):
        summary = prepare(replace(real, out=str(tmp_path / encoder), encoder=encoder))
        assert summary["encoder"] == encoder
        assert contents(tmp_path / encoder) == contents(real_data)


def test_shards_have_the_wanted_size(real, tmp_path) -> None:
    before = (
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    )  # of this process, with all tests so far
    summary = prepare(replace(real, out=str(tmp_path / "data"), shard_size="256K"))
    sizes = [np.load(path).nbytes for path in sorted((tmp_path / "data" / "train").glob("ids-*.npy"))]
    assert len(sizes) > 5
    assert all((256 << 10) - 256 < size <= 256 << 10 for size in sizes[:-1])
    assert 20 < summary["peak_memory_mib"] < before + 700
    Instances.open(tmp_path / "data", "train", verify=True)


@pytest.mark.parametrize("pairing", ["sop", "full-sentences", "doc-sentences"])
def test_workers_change_no_byte_of_the_other_pairings(shared_data, real, tmp_path, pairing) -> None:
    text = gzip.decompress((shared_data / "corpus" / "starter-en.txt.gz").read_bytes()).decode()
    (tmp_path / "corpus.txt").write_text("\n\n".join(text.split("\n\n")[:30]))
    config = replace(real, corpus=[str(tmp_path / "corpus.txt")], pairing=pairing, passes=2, seq_len=64)
    one = prepare(replace(config, out=str(tmp_path / "one")))
    prepare(replace(config, out=str(tmp_path / "two"), workers=2))
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    if pairing != "sop":  # nothing is lost: every piece is in each pass, [CLS] and [SEP] come on top
        instances = Instances.open(tmp_path / "one", "train")
        tokenizer = Tokenizer.load(tmp_path / "one")
        ids = np.concatenate(instances.rows(np.arange(len(instances))))
        normal = int(((ids != tokenizer.cls_id) & (ids != tokenizer.sep_id)).sum())
        heldout = Instances.open(tmp_path / "one", "heldout")
        ids = np.concatenate(heldout.rows(np.arange(len(heldout))))
        normal += 2 * int(((ids != tokenizer.cls_id) & (ids != tokenizer.sep_id)).sum())
        assert normal == 2 * one["corpus"]["pieces"]


def test_real_instances_are_well_formed(real_data) -> None:
    tokenizer = Tokenizer.load(real_data)
    texts = {}
    for split in ("train", "heldout"):
        instances = Instances.open(real_data, split, verify=True)
        rows = instances.rows(np.arange(len(instances)))
        everything = np.arange(len(instances))
        for row, second in zip(rows, instances.second_starts(everything).tolist(), strict=True):
            assert 5 <= len(row) <= 128
            assert np.flatnonzero(
                np.isin(row, list(tokenizer.special_ids - {tokenizer.unk_id}))
            ).tolist() == [
                0,
                second - 1,
                len(row) - 1,
            ]
        texts[split] = {row[1 : second - 1].tobytes() for row, second in zip(
            rows, instances.second_starts(everything).tolist(), strict=True) if second > 20}  # fmt: skip
    assert not texts["train"] & texts["heldout"]  # whole documents are held out


@pytest.mark.parametrize("whole_words", [False, True])
def test_c017_masks_of_real_text(real_data, whole_words) -> None:
    tokenizer = Tokenizer.load(real_data)
    instances = Instances.open(real_data, "train")
    loader = PretrainingLoader(instances, tokenizer, MaskingConfig(whole_words=whole_words), 0, 64)
    picks = normal = kept = masks = 0
    for step in range(40):
        (batch,) = loader.batch(step)
        ids = batch.tokens.input_ids
        there, labels = ids[batch.picks], batch.pick_labels
        specials = {tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id, tokenizer.mask_id}
        assert not set(labels.tolist()) & specials
        assert not set(there.tolist()) & (specials - {tokenizer.mask_id})
        rows = np.repeat(np.arange(64), batch.tokens.layout.lengths)
        per_row = np.bincount(rows[batch.picks.numpy()], minlength=64)
        budget = [min(20, max(1, round(n * 0.15))) for n in batch.tokens.layout.lengths]
        assert (per_row <= budget).all()
        assert (per_row >= 1).all()
        assert whole_words or per_row.tolist() == budget
        picks += len(there)
        normal += len(ids) - 3 * 64
        masks += int((there == tokenizer.mask_id).sum())
        kept += int((there == labels).sum())
    assert (0.12 if whole_words else 0.14) <= picks / normal <= 0.17
    assert abs(masks / picks - 0.8) < 0.02
    assert abs(kept / picks - 0.1) < 0.02
    heldout = Instances.open(real_data, "heldout")
    seen = [len(b.example_ids) for b in fixed_batches(heldout, tokenizer, MaskingConfig(), 100, 32)]
    assert sum(seen) == min(100, len(heldout))


def test_a_pipe_is_read_once_and_hashed_while_it_is_read(tmp_path, vocab) -> None:
    config = settings(tmp_path, "red one\nred two\n\nblue one\nblue two\n", vocab)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(
        target=lambda: pipe.write_bytes(Path(config.corpus[0]).read_bytes()), daemon=True
    )
    writer.start()
    prepare(replace(config, corpus=[str(pipe)]))
    writer.join(timeout=10)
    manifest = json.loads((tmp_path / "data" / "manifest.json").read_text())
    corpus = Path(config.corpus[0])
    assert manifest["inputs"] == [
        {"file": str(pipe), "source": tmp_path.name, "bytes": 35, "sha256": sha256_of(corpus)}
    ]


def test_a_share_that_leaves_too_few_to_train_on_is_named(tmp_path, vocab, caplog) -> None:
    text = "red one\nred two\n\nblue one\nblue two\n\nred one\nblue two\n"
    prepare(settings(tmp_path, text, vocab, heldout=0.9))
    assert "a share of 0.9 of 3 documents would leave too few on one side" in caplog.text
