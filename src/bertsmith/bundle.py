"""A model directory: weights, architecture, vocabulary and task; Hugging Face's tools load it too."""

from __future__ import annotations

import copy
import hashlib
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from bertsmith.config import to_dict
from bertsmith.errors import InputError
from bertsmith.files import atomic_directory, storage_errors
from bertsmith.interop import hub, huggingface, model_files, sentence_transformers, weight_names
from bertsmith.interop.stored_head import read_task
from bertsmith.model.bert import (
    Bert,
    BertForChoice,
    BertForClassification,
    BertForEmbedding,
    BertForPreTraining,
    BertForSpans,
    initialize,
)
from bertsmith.model.config import BertConfig
from bertsmith.model.task_heads import BertForTagging, FeatureClassifier, FeatureTagger
from bertsmith.stored_task import EMBEDDING
from bertsmith.text.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

Model = TypeVar("Model", bound=nn.Module)

_ARCHITECTURES: dict[type[nn.Module], str] = {
    Bert: "BertModel",
    BertForPreTraining: "BertForPreTraining",
    BertForClassification: huggingface.SEQUENCE_CLASSIFICATION,
    BertForChoice: huggingface.MULTIPLE_CHOICE,
    BertForSpans: "BertForQuestionAnswering",
    BertForTagging: huggingface.TOKEN_CLASSIFICATION,
    BertForEmbedding: "BertModel",
    FeatureTagger: "BertModel",  # other programs know no such heads; they load the encoder
    FeatureClassifier: "BertModel",
}


_LEFT_TO_RIGHT = {
    "BertForPreTraining": "BertLMHeadModel",
    "BertForMaskedLM": "BertLMHeadModel",
    huggingface.SEQUENCE_CLASSIFICATION: "BertModel",  # other programs read heads for rows at [CLS], ours not
    huggingface.MULTIPLE_CHOICE: "BertModel",
}


@dataclass(frozen=True)
class Bundle:
    """What a model directory holds.

    Attributes:
        config: the architecture.
        tokenizer: vocabulary and settings.
        task: content of task.json: task, head, labels and how texts are cut; from a directory of another
            tool, what its config.json says of the head; ``None`` without a head.
        state: weights under our names, float32.
        directory: where it was loaded from.
    """

    config: BertConfig
    tokenizer: Tokenizer
    task: dict[str, Any] | None
    state: dict[str, Tensor]
    directory: Path

    def identity(self) -> str:
        """Return a hash of architecture, tokenizer and weights, in hexadecimal."""
        digest = hashlib.sha256(json.dumps(to_dict(self.config), sort_keys=True).encode())
        digest.update(self.tokenizer.identity().encode())
        for name, value in sorted(self.state.items()):
            digest.update(f"{name} {tuple(value.shape)}".encode())
            digest.update(value.contiguous().numpy().tobytes())
        return digest.hexdigest()


def save_bundle(
    directory: Path, model: nn.Module, tokenizer: Tokenizer, task: dict[str, Any] | None, card: str
) -> None:
    """Write a model directory; a crash leaves the old one or none, never half of one.

    Args:
        directory: where; an existing one is replaced.
        model: of a class in ``_ARCHITECTURES``.
        tokenizer: the vocabulary the model was trained with.
        task: content of task.json, or ``None``.
        card: the model card, Markdown.
    """
    config: BertConfig = model.config  # type: ignore[assignment]
    state = model.state_dict()
    if isinstance(model, Bert):
        state = {f"bert.{name}": value for name, value in state.items()}
    bundle = Bundle(config, tokenizer, task, state, Path(directory))
    write_bundle(bundle, architecture_of(model), card)


def architecture_of(model: nn.Module) -> str:
    """Return BERT's class of transformers for a model."""
    return _ARCHITECTURES[type(model)]


def write_bundle(bundle: Bundle, architecture: str, card: str) -> None:
    """Write a model directory from its parts, at ``bundle.directory``; see ``save_bundle``.

    Args:
        bundle: what it will hold; all of ``state`` is written.
        architecture: BERT's class of transformers for an encoder with these heads.
        card: the model card, Markdown.
    """
    architecture = _known_architecture(architecture, bundle.config)
    directory = bundle.directory
    with atomic_directory(directory) as temporary, storage_errors(directory):
        model_type = huggingface.model_type_of(bundle.config)
        stored = weight_names.state_to_huggingface(
            bundle.state, model_type, bundle.tokenizer.pad_id, architecture
        )
        save_file(stored, temporary / "model.safetensors", metadata={"format": "pt"})
        write_settings(bundle, architecture, temporary)
        _write(temporary / "README.md", card)


def _known_architecture(architecture: str, config: BertConfig) -> str:
    """Return the class as which other programs know a model."""
    if config.recurrent_top:
        return _ARCHITECTURES[Bert]
    return _LEFT_TO_RIGHT.get(architecture, architecture) if config.context == "left" else architecture


def write_settings(bundle: Bundle, architecture: str, directory: Path) -> None:
    """Write what a model directory holds besides weights and card; see ``write_bundle``."""
    config, tokenizer, task = bundle.config, bundle.tokenizer, bundle.task
    classifier = (
        None if architecture == huggingface.MULTIPLE_CHOICE else bundle.state.get("classifier.weight")
    )
    num_outputs = None if classifier is None else classifier.shape[0]
    values = huggingface.config_to_huggingface(config, architecture, task, tokenizer.pad_id, num_outputs)
    _write(directory / "config.json", _as_json(values))
    stored_tokenizer = copy.copy(tokenizer)
    stored_tokenizer.max_length = config.max_positions
    stored_tokenizer.save(directory)
    if task is not None:
        _write(directory / "task.json", _as_json(task))
    for name, content in _pooling_files(config, task).items():
        (directory / name).parent.mkdir(exist_ok=True)
        _write(directory / name, _as_json(content))


def _pooling_files(config: BertConfig, task: dict[str, Any] | None) -> dict[str, Any]:
    """Return the files that say how an embedding model's vectors are made, by name."""
    if task is None or task.get("head") != EMBEDDING:
        return {}
    settings, seq_len = task["settings"], task.get("seq_len") or config.max_positions
    return sentence_transformers.pooling_files(
        settings["pooling"], settings["normalize"], seq_len, config.hidden_size
    )


def _write(path: Path, text: str) -> None:
    """Write a file; a label may hold half a surrogate pair, which is written as JSON spells it."""
    path.write_text(text, encoding="utf-8", errors="backslashreplace")


def _as_json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def load_bundle(directory: Path | str, allow_missing: bool = False) -> Bundle:
    """Read a model directory, ours or one of Hugging Face's.

    Args:
        directory: holds config.json, the vocabulary, model.safetensors or a tensor-only pytorch_model.bin; or
            the name of a model on the Hugging Face hub, org/name.
        allow_missing: accept missing encoder weights (they are then drawn at random).

    Raises:
        InputError: the directory is no BERT, a file is missing, broken or unsafe, a weight of the encoder is
            missing or has another shape than config.json says, or the vocabulary is larger than the
            embeddings.
    """
    directory = hub.local_directory(directory)
    if not directory.is_dir():
        raise InputError(f"{directory}: no such directory; expected a model directory with config.json")
    if not (directory / "config.json").exists() and (directory / "model" / "config.json").is_file():
        raise InputError(f"{directory}: a run, not a model; its model is {directory / 'model'}")
    values = model_files.read_config(directory / "config.json")
    stored = model_files.read_state(directory)
    return bundle_of(directory, values, Tokenizer.load(directory), stored, allow_missing)


def bundle_of(
    directory: Path,
    values: dict[str, Any],
    tokenizer: Tokenizer,
    stored: dict[str, Tensor],
    allow_missing: bool = False,
) -> Bundle:
    """Return the parts of a model, read from wherever they lie, as one.

    Args:
        directory: of the files, for messages; its task.json is read, if there is one.
        values: content of config.json.
        tokenizer: the vocabulary.
        stored: weights under the names of Hugging Face's tools, old or new.
        allow_missing: accept missing encoder weights.

    Raises:
        InputError: as ``load_bundle``.
    """
    config = huggingface.config_from_huggingface(values, directory / "config.json")
    _check_vocabulary(tokenizer, config, directory)
    state = weight_names.state_from_huggingface(
        stored, huggingface.model_type_of(config), huggingface.pad_id_of(values)
    )
    _cut_padded_vocabulary(state, config, directory)
    config = weight_names.settle_decoder(state, config, directory)
    _check_encoder(state, config, directory, allow_missing)
    return Bundle(config, tokenizer, read_task(directory, values, config, state), state, directory)


def load_shape(directory: Path | str) -> Bundle:
    """Read architecture and vocabulary of a model directory alone, for random weights; ``state`` is empty.

    Raises:
        InputError: config.json or the vocabulary is missing or broken, or they do not fit.
    """
    directory = hub.local_directory(directory)
    path = directory / "config.json"
    config = huggingface.config_from_huggingface(model_files.read_config(path), path)
    tokenizer = Tokenizer.load(directory)
    _check_vocabulary(tokenizer, config, directory)
    return Bundle(config, tokenizer, None, {}, directory)


def _check_vocabulary(tokenizer: Tokenizer, config: BertConfig, directory: Path) -> None:
    if tokenizer.vocab_size > config.vocab_size:
        raise InputError(
            f"{directory}: the vocabulary has {tokenizer.vocab_size} entries but the embeddings only "
            f"{config.vocab_size}; the vocabulary belongs to another model"
        )


def _cut_padded_vocabulary(state: dict[str, Tensor], config: BertConfig, directory: Path) -> None:
    """Drop rows that only fill the vocabulary up to a multiple: config.json tells its size."""
    for name in (weight_names.WORD_EMBEDDINGS, "mlm_head.bias", weight_names.DECODER_WEIGHT):
        if name in state and state[name].shape[0] > config.vocab_size:
            logger.warning(
                "%s: %s has %d rows, cut to vocab_size %d",
                directory,
                weight_names.their_name(name, huggingface.model_type_of(config)),
                state[name].shape[0],
                config.vocab_size,
            )
            state[name] = state[name][: config.vocab_size].contiguous()


def _check_encoder(
    state: dict[str, Tensor], config: BertConfig, directory: Path, allow_missing: bool
) -> None:
    with torch.device("meta"):
        expected = Bert(config).state_dict()
    missing = []
    for name, value in expected.items():
        name = f"bert.{name}"
        if name not in state:
            missing += weight_names.missing_names(name, state, huggingface.model_type_of(config))
        elif state[name].shape != value.shape:
            raise InputError(
                f"{directory}: {weight_names.their_name(name, huggingface.model_type_of(config))} has shape "
                f"{tuple(state[name].shape)} but "
                f"config.json says {tuple(value.shape)}; weights and config.json belong to different models"
            )
        elif not state[name].is_floating_point():
            raise InputError(
                f"{directory}: {weight_names.their_name(name, huggingface.model_type_of(config))} is of type "
                f"{str(state[name].dtype).removeprefix('torch.')}; get the model before it was quantised"
            )
    if missing and not allow_missing:
        raise InputError(
            f"{directory}: {len(missing)} weights of the encoder are missing, first {missing[0]}; "
            "get the whole file, or allow missing weights to draw them at random"
        )
    for name in missing:
        logger.warning("%s: %s is missing and is drawn at random", directory, name)


def load_encoder(bundle: Bundle) -> Bert:
    """Return the encoder alone, in evaluation mode."""
    with torch.device("meta"):
        model = Bert(bundle.config)
    prefix = "bert."
    state = {
        name.removeprefix(prefix): value for name, value in bundle.state.items() if name.startswith(prefix)
    }
    return _fill(model, state, bundle)


def load_pretraining_model(bundle: Bundle) -> BertForPreTraining:
    """Return the encoder with the heads of pretraining, in evaluation mode; missing ones drawn at random."""
    with torch.device("meta"):
        model = BertForPreTraining(bundle.config)
    return _fill(model, bundle.state, bundle, _never_stored(bundle))


def load_task_model(
    bundle: Bundle,
    make: Callable[[BertConfig, int], Model],
    num_outputs: int | None,
    head: str = "classifier",
    parts: tuple[str, ...] = (),
) -> Model:
    """Return the encoder with the head of a task, in evaluation mode.

    Args:
        bundle: the model directory.
        make: a class such as ``BertForClassification``: from the architecture and the number of outputs.
        num_outputs: draw a new head with that many outputs; ``None``: the stored head.
        head: the name of the head's last layer.
        parts: names of what else belongs to the head, drawn with it.

    Raises:
        InputError: the stored head is asked for and there is none.
    """
    state = dict(bundle.state)
    is_new = num_outputs is not None
    if num_outputs is None:
        if f"{head}.weight" not in state:
            raise InputError(
                f"{bundle.directory}: the model has no head for such a task ({head}); fine-tune it first"
            )
        num_outputs = state[f"{head}.weight"].shape[0]
    else:
        state.pop(f"{head}.weight", None)
        state.pop(f"{head}.bias", None)
    with torch.device("meta"):
        model = make(bundle.config, num_outputs)
    return _fill(model, state, bundle, (head, *parts, "bert.top", *_never_stored(bundle)) if is_new else ())


def load_embedding_model(bundle: Bundle) -> BertForEmbedding:
    """Return the encoder as a model of its own, in evaluation mode."""
    with torch.device("meta"):
        model = BertForEmbedding(bundle.config)
    return _fill(model, bundle.state, bundle)


def load_classification_model(bundle: Bundle, num_outputs: int | None) -> BertForClassification:
    """Return the encoder with a classification or regression head; see ``load_task_model``."""
    return load_task_model(bundle, BertForClassification, num_outputs)


def _never_stored(bundle: Bundle) -> tuple[str, ...]:
    """Return what the files of a pretrained model of this kind never hold."""
    return ("pooler", "nsp_head") if bundle.config.family == "roberta" else ()


def _stored_name(name: str, bundle: Bundle) -> str:
    return weight_names.their_name(name, huggingface.model_type_of(bundle.config))


def _fill(
    model: Model, state: dict[str, Tensor], bundle: Bundle, expected_missing: tuple[str, ...] = ()
) -> Model:
    """Give a model without storage its weights: the stored ones, and random ones where none are stored.

    What was drawn at random is noted, but for what the caller expects, or when all of it is to be random.
    """
    model.to_empty(device="cpu")
    expected = model.state_dict()
    missing = [name for name in expected if name not in state]
    for module_name in dict.fromkeys(name.rpartition(".")[0] for name in missing):
        initialize(model.get_submodule(module_name), bundle.config.initializer_std)
    unexpected = [name for name in missing if not name.startswith(expected_missing)]
    heads = sorted({name.split(".")[0] for name in unexpected})
    if heads and bundle.state:
        logger.warning("%s: drawn at random, not stored: %s", bundle.directory, ", ".join(heads))
    for name, value in expected.items():
        if name in state and state[name].shape != value.shape:
            raise InputError(
                f"{bundle.directory}: {_stored_name(name, bundle)} has shape {tuple(state[name].shape)}, "
                f"expected {tuple(value.shape)}"
            )
    unused = sorted(_stored_name(name, bundle) for name in state if name not in expected)
    if unused:
        logger.info("%s: not used: %s", bundle.directory, ", ".join(unused))
    model.load_state_dict({name: state[name] for name in expected if name in state}, strict=False)
    return model.eval()
