"""How each preset differs from bert-exact, by the numbers of the facts that its settings are about."""

from __future__ import annotations

from typing import Any

from bertsmith.config import to_dict
from bertsmith.presets import PRESETS

FACTS_OF_SETTINGS = {
    "architecture.activation": 2,
    "architecture.family": 5,
    "architecture.initializer_std": 3,
    "architecture.layer_norm_eps": 1,
    "architecture.norm": 1,
    "architecture.num_segments": 1,
    "batch_size": 21,
    "dropout": 1,
    "long_batch_size": 14,
    "masking.dynamic": 11,
    "masking.random_specials": 13,
    "optimizer.adam_rate": 18,
    "optimizer.beta2": 16,
    "optimizer.learning_rate": 18,
    "optimizer.max_grad_norm": 19,
    "optimizer.name": 16,
    "optimizer.schedule": 18,
    "optimizer.warmup_fraction": 18,
    "precision": 1,
    "word_bias": 3,
}
# What changes no fact: names, published sizes, how a batch is cut; how long to train is the user's choice.
_FREE = {
    "architecture.hidden_size",
    "architecture.intermediate_size",
    "architecture.num_heads",
    "architecture.num_layers",
    "micro_batch_size",
    "preset",
    "steps",
}
SECTION = """\

## How the presets differ

`bert-exact` differs from the original's pretraining in the deliberate lines above alone, and not in those of
facts 13 and 18 about defaults. The others differ from it as well, by the numbers of the facts; what each
difference is for is in [recipes.md](recipes.md). Data is prepared with one pass unless `--passes` says more
(fact 11), for `fast-*` and `roberta-*` with full sentences instead of pairs (facts 7 to 10).
`precision auto` is bfloat16 where the processor computes in it.

| preset | fact: setting |
| --- | --- |
"""


def flat(settings: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return every setting by its path."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        path = f"{prefix}{name}"
        found |= flat(value, f"{path}.") if isinstance(value, dict) else {path: value}
    return found


def deviations_of(preset: str) -> list[tuple[int, str, Any]]:
    """Return fact, setting and value of each difference to bert-exact, sorted."""
    ours, exact = (flat(to_dict(PRESETS[name]("DATA", "RUN"))) for name in (preset, "bert-exact"))
    changed = [path for path in exact if ours[path] != exact[path] and path not in _FREE]
    return sorted((FACTS_OF_SETTINGS[path], path, ours[path]) for path in changed)


def section() -> str:
    """Return the page's section of the presets."""
    others = {preset: deviations_of(preset) for preset in PRESETS if preset != "bert-exact"}
    common = [one for one in others["bert-base"] if all(one in found for found in others.values())]
    rows = {"all others": common}
    rows |= {preset: [one for one in found if one not in common] for preset, found in others.items()}
    lines = []
    for name, found in rows.items():
        parts = [f"{number}: {path} {value}" for number, path, value in found]
        lines.append(f"| {name} | {', '.join(parts) or 'nothing more'} |")
    return SECTION + "\n".join(lines) + "\n"
