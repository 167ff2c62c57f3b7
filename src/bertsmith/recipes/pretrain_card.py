"""The card of a pretrained model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bertsmith.recipes.model_card import LICENSE, NOT_KNOWN, card, code, listed, table


def pretrained_card(figures: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """Return the card.

    Args:
        figures: content of metrics.json.
        settings: of the run.
    """
    architecture = settings["architecture"]
    is_left = architecture.get("context") == "left" or architecture.get("mixing") == "lstm"
    parts = [
        _LEFT if is_left else _BOTH,
        "## Use",
        code("sh", *([] if is_left else [_FILL]), _FINETUNE),
        "`transformers` loads the directory too.",
        "## Where it stands",
        table(["figure", "value"], [[name, value] for name, value in figures.items() if _is_figure(value)]),
        "Losses are in nats. `uniform_entropy` is that of blind guesses, `heldout_unigram_entropy` that of "
        "word frequencies: only what lies below it was learned from context.",
        "## Read this with the figures",
        listed([*_caveats(figures), NOT_KNOWN, LICENSE]),
        "## Architecture",
        table(["setting", "value"], list(settings["architecture"].items())),
        "## Training",
        table(["setting", "value"], [[name, value] for name, value in _flat(settings) if value is not None]),
    ]
    pipeline = "text-generation" if is_left else "fill-mask"
    metadata = {"library_name": "bertsmith", "tags": ["bert", "pretraining"], "pipeline_tag": pipeline}
    return card("A BERT pretrained with Bertsmith", metadata, parts)


_BOTH = "A BERT encoder pretrained with Bertsmith, to be fine-tuned; by itself it fills in words."
_LEFT = (
    "An encoder pretrained with Bertsmith to predict neighbouring words, to be fine-tuned: what BERT is "
    "compared with."
)
_FILL = 'bertsmith fill --model MODEL "text with one [MASK]"'
_FINETUNE = "bertsmith finetune --task classify --model MODEL --data rows.csv --out RUN"
_PLACES = ("architecture", "out", "data", "long_data", "probe_data", "init", "resume")


def _is_figure(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _flat(settings: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the settings but those that only say where things are on one machine."""
    found: list[tuple[str, Any]] = []
    for name, value in settings.items():
        if isinstance(value, Mapping) and name != "architecture":
            found += [(f"{name}.{inner}", one) for inner, one in value.items()]
        elif name not in _PLACES:
            found.append((name, value))
    return found


def _caveats(figures: Mapping[str, Any]) -> list[str]:
    found = [f"Step {one['step']}: {one['text']}" for one in figures.get("findings") or []]
    if figures.get("rollbacks"):
        found.append(f"The run went back to an earlier checkpoint {figures['rollbacks']} times.")
    loss, level = figures.get("heldout_mlm_loss"), figures.get("heldout_unigram_entropy")
    if loss is None:
        found.append("Nothing was held out: how good the model is on other text was not measured.")
    elif level is not None and loss > level - 0.1:
        found.append("The model knows little more than how frequent each word is.")
    return found
