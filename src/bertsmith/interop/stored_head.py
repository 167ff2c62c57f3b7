"""What a model directory says of its head, in our task.json or the files of other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bertsmith.interop import huggingface, model_files, sentence_transformers
from bertsmith.interop.huggingface import MULTIPLE_CHOICE, SEQUENCE_CLASSIFICATION, TOKEN_CLASSIFICATION
from bertsmith.interop.model_files import State
from bertsmith.model.config import BertConfig
from bertsmith.stored_task import EMBEDDING, check_stored_task


def read_task(
    directory: Path, values: dict[str, Any], config: BertConfig, state: State
) -> dict[str, Any] | None:
    """Return the content of task.json, or the same from what other tools write; ``None`` without a head.

    Args:
        directory: of the model.
        values: content of its config.json.
        config: its architecture.
        state: its weights under our names.

    Raises:
        InputError: a file is broken, or does not fit the weights.
    """
    path = directory / "task.json"
    classifier = state.get("classifier.weight")
    if not path.is_file() and "span_scores.weight" in state:
        seq_len = min(384, config.max_positions)
        settings = {"max_query_len": min(64, seq_len // 4)}
        return {"task": "answer", "head": "spans", "labels": None, "seq_len": seq_len, "settings": settings}
    if path.is_file():
        task = model_files.read_config(path)
        outputs = None if classifier is None else classifier.shape[0]
        check_stored_task(task, path, config.max_positions, outputs)
        return task
    if (stored := sentence_transformers.read_pooling(directory)) is not None:
        seq_len = min(stored.seq_len or config.max_positions, config.max_positions)
        task = {"task": "embed", "head": EMBEDDING, "labels": None, "seq_len": seq_len}
        task["settings"] = {"pooling": stored.pooling, "normalize": stored.normalize}
        check_stored_task(task, directory / sentence_transformers.MODULES_FILE, config.max_positions, None)
        return task
    if classifier is None:
        return None
    # Heads for words and for choices have weights of the same name: they are no head for whole texts.
    model_type = huggingface.model_type_of(config)
    single, choice, words = (
        huggingface.class_of(bert_class, model_type)
        for bert_class in (SEQUENCE_CLASSIFICATION, MULTIPLE_CHOICE, TOKEN_CLASSIFICATION)
    )
    architectures = values.get("architectures") or [single]
    if words in architectures:
        names = huggingface.label_names(values, classifier.shape[0], directory / "config.json")
        return {"task": "tag", "head": "tagging", "labels": names}
    if "pooler.dense.weight" not in state or config.context == "left":
        return None
    if choice in architectures and classifier.shape[0] == 1:
        return {"task": "choose", "head": "choice", "labels": None}
    if single not in architectures:
        return None
    return huggingface.task_from_huggingface(values, classifier.shape[0], directory / "config.json")
