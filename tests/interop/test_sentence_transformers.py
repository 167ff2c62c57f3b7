"""Pooling files: sentence-transformers reads ours with equal vectors, we read theirs or say why not."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import bertsmith
from bertsmith.bundle import load_bundle, save_bundle
from bertsmith.errors import InputError
from bertsmith.interop.sentence_transformers import StoredPooling, pooling_files, read_pooling
from bertsmith.model.bert import Bert
from bertsmith.model.config import BertConfig
from bertsmith.text.config import TokenizerConfig
from bertsmith.text.tokenizer import SPECIAL_TOKENS, Tokenizer

WORDS = [*SPECIAL_TOKENS, "the", "city", "of", "paris", "hello", "a", "##s", ".", "你", "好"]
CONFIG = BertConfig(len(WORDS), 24, 2, 3, 48, 40)
TEXTS = ["Hello.", "The city of Paris, cities of a city", "", "你好", "the city " * 30]
POOLINGS = [("mean", True), ("mean", False), ("max", False), ("cls", True)]


def saved(directory: Path, pooling: str, normalize: bool) -> Path:
    torch.manual_seed(3)
    model = Bert(CONFIG).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    settings = {"pooling": pooling, "normalize": normalize}
    task = {"task": "embed", "head": "embedding", "labels": None, "seq_len": 20, "settings": settings}
    save_bundle(directory, model, Tokenizer(WORDS, TokenizerConfig()), task, "# card\n")
    return directory


def written(directory: Path, files: dict[str, object]) -> Path:
    for name, content in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(json.dumps(content))
    return directory


@pytest.mark.parametrize("pooling, normalize", POOLINGS)
def test_sentence_transformers_makes_equal_vectors_of_our_directory(tmp_path, pooling, normalize):
    peer = pytest.importorskip("sentence_transformers")
    directory = saved(tmp_path / "model", pooling, normalize)
    theirs = peer.SentenceTransformer(str(directory), device="cpu")
    assert theirs.max_seq_length == 20
    ours = bertsmith.load(directory)
    assert ours.seq_len == 20
    vectors = ours.embed(TEXTS, pooling=pooling, normalize=normalize).vectors
    np.testing.assert_allclose(vectors, theirs.encode(TEXTS), atol=1e-5)
    theirs.save(str(tmp_path / "theirs"))
    assert not (tmp_path / "theirs" / "task.json").exists()
    task = load_bundle(directory).task
    assert load_bundle(tmp_path / "theirs").task == task  # it has its own, newer form of the files
    again = bertsmith.load(tmp_path / "theirs")
    np.testing.assert_allclose(again.embed(TEXTS, pooling=pooling, normalize=normalize), vectors, atol=1e-6)


def test_minilm_says_how_its_vectors_are_made(minilm_path):
    assert read_pooling(minilm_path) == StoredPooling("mean", True, 256)
    settings = {"pooling": "mean", "normalize": True}
    task = {"task": "embed", "head": "embedding", "labels": None, "seq_len": 256, "settings": settings}
    assert load_bundle(minilm_path).task == task


@pytest.mark.parametrize("pooling, normalize", POOLINGS)
def test_what_is_written_is_read(tmp_path, pooling, normalize):
    written(tmp_path, pooling_files(pooling, normalize, 33, 24))
    assert read_pooling(tmp_path) == StoredPooling(pooling, normalize, 33)


def test_a_stored_task_counts_more_than_the_files_beside_it(tmp_path):
    directory = saved(tmp_path / "model", "cls", False)
    written(directory, pooling_files("mean", True, 33, 24))
    assert load_bundle(directory).task["settings"] == {"pooling": "cls", "normalize": False}


def test_a_length_beyond_the_positions_is_the_positions(tmp_path):
    directory = saved(tmp_path / "model", "cls", False)
    (directory / "task.json").unlink()
    written(directory, {"sentence_bert_config.json": {"max_seq_length": 512}})
    assert load_bundle(directory).task["seq_len"] == CONFIG.max_positions
    written(directory, {"sentence_bert_config.json": {"max_seq_length": 2}})
    with pytest.raises(InputError, match="seq_len is 2; expected 3 to 40"):
        load_bundle(directory)


@pytest.mark.parametrize(
    "change, reason",
    [
        ({"1_Pooling/config.json": {"pooling_mode": "lasttoken"}}, "the pooling lasttoken"),
        ({"1_Pooling/config.json": {"pooling_mode": ["cls", "mean"]}}, "the pooling cls and mean"),
        (
            {"1_Pooling/config.json": {"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True}},
            "the pooling mean and max",
        ),
        ({"1_Pooling/config.json": {"pooling_mode_weightedmean_tokens": True}}, "pooling_mode_weightedmean"),
        (
            {
                "sentence_bert_config.json": {"max_seq_length": 9, "do_lower_case": True},
                "tokenizer_config.json": {"do_lower_case": False},
            },
            "texts in lower case before a cased vocabulary",
        ),
        (
            {
                "config_sentence_transformers.json": {
                    "prompts": {"query": "query: "},
                    "default_prompt_name": "query",
                }
            },
            "the prompt 'query: ' before every text",
        ),
        (
            {
                "modules.json": [
                    {"path": "", "type": "sentence_transformers.models.Transformer"},
                    {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
                    {"path": "2_Dense", "type": "sentence_transformers.models.Dense"},
                ]
            },
            "the modules Transformer, Pooling, Dense",
        ),
    ],
)
def test_what_is_not_supported_is_said(tmp_path, caplog, change, reason):
    written(tmp_path, pooling_files("mean", True, 33, 24) | change)
    with caplog.at_level(logging.WARNING):
        assert read_pooling(tmp_path) is None
    (record,) = caplog.records
    assert reason in record.getMessage()
    assert "vectors will differ" in record.getMessage()


def test_prompts_that_nothing_uses_by_default_do_not_matter(tmp_path):
    prompts = {"prompts": {"query": "", "document": "passage: "}, "default_prompt_name": None}
    written(tmp_path, pooling_files("mean", True, 33, 24) | {"config_sentence_transformers.json": prompts})
    assert read_pooling(tmp_path) is not None


@pytest.mark.parametrize(
    "change, message",
    [
        ({"modules.json": {"a": 1}}, "modules.json: expected a list of modules"),
        ({"modules.json": [{"type": 3, "path": ""}]}, "modules.json: expected a list of modules"),
        (
            {"modules.json": [{"type": "Transformer", "path": ""}, {"type": "Pooling", "path": "../out"}]},
            "leads out of the directory",
        ),
    ],
)
def test_broken_files_are_one_clear_error(tmp_path, change, message):
    written(tmp_path, pooling_files("mean", True, 33, 24) | change)
    with pytest.raises(InputError, match=message):
        read_pooling(tmp_path)


def test_other_directories_have_no_pooling(tmp_path):
    assert read_pooling(tmp_path) is None
    written(tmp_path, {"modules.json": [{"path": "", "type": "sentence_transformers.cross_encoder.X"}]})
    assert read_pooling(tmp_path) is None
    shutil.rmtree(tmp_path / "1_Pooling", ignore_errors=True)
    written(tmp_path, {"modules.json": pooling_files("mean", True, 9, 8)["modules.json"]})
    with pytest.raises(InputError, match=r"1_Pooling/config.json: no such file"):
        read_pooling(tmp_path)
