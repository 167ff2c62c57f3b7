"""Features of a frozen encoder: the right states, computed once, the same from disk and on the fly."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertsmith.bundle import Bundle, load_bundle, load_encoder, save_bundle
from bertsmith.data.batch import tokens_of
from bertsmith.errors import InputError
from bertsmith.features import LAYER_CHOICES, choose_layers
from bertsmith.model.bert import Bert
from bertsmith.model.config import BertConfig
from bertsmith.model.heads import LayerMix
from bertsmith.model.task_heads import LSTM_SIZE, FeatureTagger
from bertsmith.objectives import TaggingObjective
from bertsmith.tasks import frozen_encoder
from bertsmith.tasks.entities import Entity
from bertsmith.tasks.feature_tagging import FEATURE_TAGGING, FeatureWords
from bertsmith.tasks.frozen_encoder import StateCache, with_frozen_encoder
from bertsmith.tasks.inference import Inference
from bertsmith.tasks.kind import Encoding
from bertsmith.tasks.source import RowSet
from bertsmith.tasks.tagged_rows import TaggedRow, row_of_words
from bertsmith.tasks.tagging import by_words
from bertsmith.tasks.task import TASKS
from bertsmith.text.config import TokenizerConfig
from bertsmith.text.tokenizer import SPECIAL_TOKENS, Tokenizer

LABELS = ("O", "B-LOC", "I-LOC")
TOKENIZER = Tokenizer([*SPECIAL_TOKENS, "ada", "in", "rome", "new", "##er"], TokenizerConfig())
SHAPE = BertConfig(
    vocab_size=TOKENIZER.vocab_size,
    hidden_size=16,
    num_layers=5,
    num_heads=2,
    intermediate_size=32,
    max_positions=32,
    initializer_std=0.3,
)
INFERENCE = Inference(torch.device("cpu"), torch.float32)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    torch.manual_seed(0)
    directory = tmp_path_factory.mktemp("encoder") / "model"
    save_bundle(directory, Bert(SHAPE), TOKENIZER, None, "card")
    return load_bundle(directory)


def rows() -> list[TaggedRow]:
    return [
        row_of_words(
            [*["Ada", "newer"] * (place % 5), "in", "Rome"],
            [Entity(place % 5 * 2 + 1, place % 5 * 2 + 2, "LOC")],
            place,
            place // 6,
        )
        for place in range(20)
    ]


def encode(bundle: Bundle, kind: Any = FEATURE_TAGGING) -> FeatureWords:
    split = kind.encode(TASKS["tag"], RowSet(rows(), "rows.txt"), LABELS, Encoding(TOKENIZER, 16, "tail"))
    assert isinstance(split, FeatureWords)
    return split


def described(bundle: Bundle, features: str) -> Bundle:
    """Return the encoder as a fine-tuning describes it before it draws a head."""
    return dataclasses.replace(bundle, task={"settings": {"features": features}})


@pytest.mark.parametrize(
    ("name", "layers", "weighted"),
    [
        ("embeddings", (0,), False),
        ("second-to-last", (11,), False),
        ("last", (12,), False),
        ("weighted-last-4", (9, 10, 11, 12), True),
        ("concat-last-4", (9, 10, 11, 12), False),
        ("weighted-all", tuple(range(1, 13)), True),
    ],
)
def test_the_six_choices_of_table_7(name: str, layers: tuple[int, ...], weighted: bool) -> None:
    choice = choose_layers(name, 12)
    assert (choice.layers, choice.weighted) == (layers, weighted)
    model = FeatureTagger(dataclasses.replace(SHAPE, num_layers=2), 3, choice.layers, choice.weighted)
    assert model.lstm.input_size == SHAPE.hidden_size * (1 if weighted else len(layers))
    assert (model.lstm.num_layers, model.lstm.bidirectional) == (2, True)
    assert model.classifier.in_features == LSTM_SIZE == 768


def test_choices_that_do_not_exist_are_refused() -> None:
    with pytest.raises(InputError, match="features is 'first'; take one of embeddings"):
        choose_layers("first", 12)
    with pytest.raises(InputError, match="takes more layers than the model's 3"):
        choose_layers("concat-last-4", 3)


def test_a_mixture_of_layers_is_elmos() -> None:
    torch.manual_seed(1)
    mix, states = LayerMix(3), torch.randn(4, 3, 8)
    assert torch.allclose(mix(states), states.mean(dim=1), atol=1e-6)
    with torch.no_grad():
        mix.weights.copy_(torch.tensor([0.5, -1.0, 2.0]))
        mix.scale.fill_(3.0)
    shares = np.exp([0.5, -1.0, 2.0]) / np.exp([0.5, -1.0, 2.0]).sum()
    expected = 3.0 * sum(share * states[:, place].numpy() for place, share in enumerate(shares))
    assert mix(states).detach().numpy() == pytest.approx(expected, abs=1e-5)


def test_states_are_those_of_first_pieces(bundle: Bundle, tmp_path: Path) -> None:
    """Against transformers: every layer's output at every word's first piece."""
    transformers = pytest.importorskip("transformers")
    theirs = transformers.BertModel.from_pretrained(bundle.directory, add_pooling_layer=False).eval()
    split = encode(bundle)
    cache = StateCache(load_encoder(bundle), (0, 2, 5), tmp_path, INFERENCE)
    found = np.stack(cache.states(split.encoded), axis=1)  # (words, layers, hidden)
    assert found.dtype == np.float16
    for window in split.encoded:
        with torch.no_grad():
            hidden = theirs(torch.from_numpy(window.ids)[None], output_hidden_states=True).hidden_states
        expected = torch.stack([hidden[layer][0, window.picks] for layer in (0, 2, 5)], dim=1)
        assert found[window.words] == pytest.approx(expected.numpy(), abs=5e-3)


def test_states_are_computed_once_and_shared_by_choices(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    split, encoder = encode(bundle), load_encoder(bundle)
    first = StateCache(encoder, (2, 3), tmp_path, INFERENCE).states(split.encoded)
    assert all(isinstance(part, np.memmap) for part in first)
    computed: list[tuple[int, ...]] = []
    real = frozen_encoder.states_of

    def counting(encoder: Bert, windows: Any, layers: tuple[int, ...], inference: Inference) -> Any:
        computed.append(layers)
        return real(encoder, windows, layers, inference)

    monkeypatch.setattr(frozen_encoder, "states_of", counting)
    again = StateCache(encoder, (3, 4, 2), tmp_path, INFERENCE).states(split.encoded)
    assert computed == [(4,)]
    assert np.array_equal(again[0], first[1])
    assert np.array_equal(again[2], first[0])
    other = dataclasses.replace(bundle, state={name: value + 1e-3 for name, value in bundle.state.items()})
    StateCache(load_encoder(other), (2,), tmp_path, INFERENCE).states(split.encoded)
    assert computed == [(4,), (2,)], "other weights have other states"
    assert len(list(tmp_path.iterdir())) == 4


def test_a_damaged_file_is_named(bundle: Bundle, tmp_path: Path) -> None:
    split = encode(bundle)
    cache = StateCache(load_encoder(bundle), (1,), tmp_path, INFERENCE)
    cache.states(split.encoded)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(InputError, match=r"layer-1\.npy: no whole file of features"):
        cache.states(split.encoded)


@pytest.mark.parametrize("features", LAYER_CHOICES)
def test_outputs_are_the_same_from_the_cache_and_from_the_stored_model(
    bundle: Bundle, tmp_path: Path, features: str
) -> None:
    task = with_frozen_encoder(TASKS["tag"], bundle, features, tmp_path / "features", INFERENCE)
    torch.manual_seed(2)
    model = task.kind.load_model(described(bundle, features), len(LABELS))
    cached = encode(bundle, task.kind)
    assert cached.num_units == 20
    expected = by_words(cached, task.kind.outputs(model, cached, INFERENCE))
    stored = {
        "task": "tag",
        "head": "feature-tagging",
        "labels": list(LABELS),
        "settings": {"features": features},
    }
    save_bundle(tmp_path / "model", model, TOKENIZER, stored, "card")
    loaded = load_bundle(tmp_path / "model")
    split = encode(loaded)
    assert split.cache is None
    for inference in (INFERENCE, dataclasses.replace(INFERENCE, batch_tokens=7)):
        outputs = FEATURE_TAGGING.outputs(FEATURE_TAGGING.load_model(loaded, None), split, inference)
        assert by_words(split, outputs) == pytest.approx(expected, abs=2e-3)
    assert np.abs(expected).max() > 0.05


def test_sentences_do_not_see_each_other_and_the_encoder_does_not_learn(
    bundle: Bundle, tmp_path: Path
) -> None:
    task = with_frozen_encoder(TASKS["tag"], bundle, "concat-last-4", tmp_path, INFERENCE)
    split = encode(bundle, task.kind)
    torch.manual_seed(3)
    model = task.kind.load_model(described(bundle, "concat-last-4"), len(LABELS)).eval()
    batch = split.batch([3, 0, 9])
    alone = [split.batch([unit]) for unit in (0, 3, 9)]  # 2, 8 and 10 words
    assert batch.tokens.layout.lengths == (2, 8, 10)
    assert torch.equal(batch.labels, torch.cat([part.labels for part in alone]))
    assert torch.allclose(model(*batch.inputs), torch.cat([model(*part.inputs) for part in alone]), atol=1e-5)
    losses, _ = TaggingObjective().sums(model, batch)
    losses["loss"].backward()
    learning = {name.split(".")[0] for name, value in model.named_parameters() if value.grad is not None}
    assert learning == {"lstm", "classifier"}
    assert not any(value.requires_grad for value in model.bert.parameters())


def test_other_programs_load_the_encoder(bundle: Bundle, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    task = with_frozen_encoder(TASKS["tag"], bundle, "last", tmp_path / "features", INFERENCE)
    model = task.kind.load_model(described(bundle, "last"), len(LABELS))
    save_bundle(tmp_path / "model", model, TOKENIZER, {"labels": list(LABELS)}, "card")
    theirs = transformers.AutoModel.from_pretrained(tmp_path / "model").eval()
    ids = np.array([2, 5, 6, 3])
    with torch.no_grad():
        expected = theirs(torch.from_numpy(ids)[None]).last_hidden_state[0]
        found = model.bert.eval()(tokens_of([ids], [4]))
    assert torch.allclose(found, expected, atol=1e-5)


def test_random_weights_have_no_features(bundle: Bundle, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="leave out --random-weights"):
        with_frozen_encoder(TASKS["tag"], dataclasses.replace(bundle, state={}), "last", tmp_path, INFERENCE)
