"""What became of each weight of a converted model."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from bertsmith.interop import weight_names
from bertsmith.interop.tensorflow import UNKNOWN
from bertsmith.recipes.convert_source import Source

_WORDS = "bert.embeddings.word_embeddings.weight"
_BIAS, _DECODER_BIAS = "cls.predictions.bias", "cls.predictions.decoder.bias"
_DECODER = "cls.predictions.decoder.weight"
_ATTENTION = re.compile(r"(bert\..*\.attention\.self\.)(query|key|value)(\.weight|\.bias)")
_EXAMPLES = 4


def weights_report(
    source: Source, model_type: str, written: Iterable[str], bert_class: str
) -> dict[str, Any]:
    """Return what became of each weight.

    Args:
        source: what was read.
        model_type: kind of the model.
        written: names in the new model's file.
        bert_class: BERT's class of transformers that the new model is.

    Returns:
        ``taken``: names that stay; ``renamed``: new names by the old; ``missing``: names that the new model
        has and the source has not; ``unused``: why others were left out, by name.
    """
    names = weight_names.bert_names(source.stored, model_type)
    new = {bert: name for name, bert in weight_names.bert_names(written, model_type).items()}
    twice = {_BIAS} if _DECODER_BIAS in names.values() else set()  # two names of one weight
    targets = {stored: new.get(bert) for stored, bert in names.items()}
    reasons = {stored: _reason(bert, bert_class) for stored, bert in names.items()}
    _settle_decoder(source, {bert: stored for stored, bert in names.items()}, new, targets, reasons)
    _drop_torn_attention({bert: stored for stored, bert in names.items()}, targets, reasons)
    found = {source.names.get(stored, stored): target for stored, target in targets.items()}
    left_out = {source.names.get(stored, stored): reason for stored, reason in reasons.items()}
    return {
        "taken": sorted(name for name, target in found.items() if target == name),
        "renamed": {name: target for name, target in found.items() if target not in (None, name)},
        "missing": sorted(set(new.values()) - set(found.values()) - {new.get(name) for name in twice}),
        "unused": {name: left_out[name] for name, target in found.items() if target is None}
        | dict(source.unused),
    }


def _reason(bert: str, bert_class: str) -> str:
    """Return why a weight that is not in the new model is left out."""
    if weight_names.is_buffer(bert):
        return "a buffer, no weight"
    if bert.startswith(("bert.pooler.", "cls.", "classifier.", "qa_outputs.")):
        return f"{bert_class} has no such part"
    return UNKNOWN


def _settle_decoder(
    source: Source,
    stored: Mapping[str, str],
    new: Mapping[str, str],
    targets: dict[str, str | None],
    reasons: dict[str, str],
) -> None:
    """Say what became of a decoder, whose weight and bias may be stored twice.

    Args:
        source: what was read.
        stored: the stored names by BERT's.
        new: the new names by BERT's.
        targets: the new names by the stored ones, changed in place.
        reasons: why a weight is left out, changed in place.
    """
    for decoder, same in ((_DECODER, _WORDS), (_DECODER_BIAS, _BIAS)):
        if decoder not in stored or same not in new:
            continue
        is_equal = same in stored and torch.equal(source.stored[stored[decoder]], source.stored[stored[same]])
        if decoder not in new and not is_equal:
            targets[stored[decoder]] = new[same]
        reasons[stored[decoder]] = f"equal to {same}, which stands for it"
        if decoder == _DECODER_BIAS and same in stored and not is_equal:
            targets[stored[same]] = None
            reasons[stored[same]] = "what is added to the scores is the decoder's own bias"


def _drop_torn_attention(
    stored: Mapping[str, str], targets: dict[str, str | None], reasons: dict[str, str]
) -> None:
    """Say that query, key and value, which one tensor holds here, are drawn together if one is missing."""
    for bert, name in stored.items():
        match = _ATTENTION.fullmatch(bert)
        if match and any(f"{match[1]}{part}{match[3]}" not in stored for part in ("query", "key", "value")):
            targets[name] = None
            reasons[name] = "drawn at random with the missing one of query, key and value"


def told(report: Mapping[str, Any]) -> str:
    """Return a report in a few lines for people."""
    weights = report["weights"]
    lines = [
        f"{report['out']}: {report['architecture']} from {report['input']} ({report['format']})",
        *(f"  note     {note}" for note in report["notes"]),
        f"  taken    {len(weights['taken'])} weights under their names",
    ]
    pairs = list(weights["renamed"].items())
    lines += [f"  renamed  {len(pairs)}"] if pairs else []
    lines += [f"             {old} -> {new}" for old, new in pairs[:_EXAMPLES]]
    lines += [f"             … (all in {report['report']})"] if len(pairs) > _EXAMPLES else []
    lines += [f"  missing  {name} (drawn at random when a model needs it)" for name in weights["missing"]]
    for reason, count in Counter(weights["unused"].values()).items():
        names = [name for name, why in weights["unused"].items() if why == reason]
        more = ", …" if count > _EXAMPLES else ""
        lines.append(f"  unused   {count}: {reason}: {', '.join(names[:_EXAMPLES])}{more}")
    lines.append(f"  checked  {report['tensors_equal']} tensors read back, equal to the source bit by bit")
    return "\n".join(lines)
