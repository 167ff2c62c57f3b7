"""From which share on a finding is noted, warned of, or an error; and why.

An error says that training (or the evaluation that was named) would be wasted: ``doctor`` then exits with 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

NEVER = 2.0
"""A limit that no share reaches."""
_ANY = 1e-12


@dataclass(frozen=True)
class Limits:
    """Shares from which a finding has a level.

    Attributes:
        of: the whole of which the share is meant.
        note: from here it is worth a word.
        warning: from here it costs something.
        error: from here training would be wasted.
        why: the reason of the error's limit, or that there is none.
    """

    of: str
    note: float
    warning: float
    error: float
    why: str

    def level(self, share: float) -> str | None:
        """Return the level of a share; ``None``: not worth a word."""
        for name in ("error", "warning", "note"):
            if share >= getattr(self, name):
                return name
        return None

    def severity(self, share: float) -> float:
        """Return how many times a share is the limit of an error, else of a warning."""
        return share / (self.error if self.error < NEVER else self.warning * 10)


_REPEATED = "a third of every epoch would go into text that was seen before, and the model learns it by heart"
_DAMAGED = "in every tenth line letters are missing or wrong, and the model learns the damage as language"

_STOPS = "finetune and evaluate stop at the first of them"

LIMITS: Mapping[str, Limits] = {
    "repeated_lines": Limits("characters", 0.002, 0.05, 0.3, _REPEATED),
    "repeated_documents": Limits("characters", _ANY, 0.02, 0.3, _REPEATED),
    "near_duplicates": Limits("characters", _ANY, 0.05, 0.3, _REPEATED),
    "boilerplate": Limits("characters", 0.001, 0.02, 0.3, _REPEATED),
    "repeated_instances": Limits("instances", 0.001, 0.05, 0.3, _REPEATED),
    "one_document": Limits("documents", _ANY, _ANY, _ANY, "pairs need two documents: prepare would refuse"),
    "one_sentence_documents": Limits(
        "documents", 0.05, 0.3, 0.9, "nearly every second text would be a random one: nothing to tell apart"
    ),
    "pair_balance": Limits(
        "pairs", 0.6, 0.75, 0.9, "always giving the same answer is right nine times in ten: nothing is learnt"
    ),
    "short_documents": Limits("documents", 0.2, 0.5, NEVER, "no error: short documents can be meant"),
    "large_document": Limits("characters", 0.2, 0.5, NEVER, "no error: one long book can be meant"),
    "dropped_lines": Limits(
        "lines",
        0.3,
        0.6,
        0.9,
        "nine tenths of the lines would never reach the model, likely against your will",
    ),
    "little_text": Limits(
        "of what is missing to a million words", _ANY, _ANY, NEVER, "no error: it may be a trial"
    ),
    "unknown_pieces": Limits(
        "pieces",
        0.001,
        0.01,
        0.1,
        "every tenth piece says nothing, and [UNK] is the answer to every tenth mask",
    ),
    "vocabulary_repeats": Limits(
        "entries", _ANY, _ANY, NEVER, "no error: the repeated entries are only unused"
    ),
    "special_tokens": Limits("lines", _ANY, 0.001, NEVER, "no error: bertsmith reads them as plain text"),
    "invalid_utf8": Limits("lines", _ANY, 0.001, 0.1, _DAMAGED),
    "replacement_characters": Limits("lines", _ANY, 0.001, 0.1, _DAMAGED),
    "mojibake": Limits("lines", _ANY, 0.001, 0.1, _DAMAGED),
    "control_characters": Limits("lines", _ANY, 0.001, 0.1, _DAMAGED),
    "foreign_line_ends": Limits(
        "line ends", _ANY, 0.01, 0.5, "most lines would be glued together: documents and sentences are lost"
    ),
    "markup": Limits("lines", 1e-4, 0.01, 0.3, "a third of the lines would teach markup instead of language"),
    "languages": Limits("sampled lines", 0.01, 0.05, NEVER, "no error: a mix of languages can be meant"),
    "contamination": Limits(
        "rows",
        _ANY,
        0.01,
        0.1,
        "every tenth answer may be remembered: the score no longer says what it should",
    ),
    "ids_beyond_vocabulary": Limits("instances", _ANY, _ANY, _ANY, "training stops or reads foreign memory"),
    "broken_instances": Limits(
        "instances", _ANY, _ANY, _ANY, "rows without [CLS] and [SEP] are no BERT input"
    ),
    "wrong_tokenizer": Limits(
        "vocabulary", _ANY, _ANY, _ANY, "the ids mean other pieces: all of it is noise"
    ),
    "heldout_in_training": Limits(
        "held-out instances", _ANY, 0.01, 0.2, "the held-out loss would measure what was learnt by heart"
    ),
    "no_heldout": Limits("data", _ANY, NEVER, NEVER, "no error: a run can do without"),
    "short_instances": Limits(
        "instances", 0.25, 0.5, NEVER, "no error: unpadded rows cost nothing to compute"
    ),
    "wrong_encoding": Limits("lines", _ANY, _ANY, _ANY, _STOPS),
    "wrong_delimiter": Limits("rows", _ANY, _ANY, _ANY, _STOPS),
    "ragged_rows": Limits("rows", _ANY, _ANY, _ANY, _STOPS),
    "broken_quotes": Limits("rows", _ANY, _ANY, _ANY, _STOPS),
    "broken_json": Limits("lines", _ANY, _ANY, _ANY, _STOPS),
    "quoted_fields": Limits("rows", 0.2, 0.5, NEVER, "no error: the quotes can be part of the text"),
    "swallowed_rows": Limits("train rows", _ANY, 0.001, 0.1, "every tenth row has others in its text"),
    "missing_values": Limits("train rows", _ANY, _ANY, 0.5, "most rows would be left out"),
    "few_rows": Limits("what is missing to a hundred rows", _ANY, _ANY, NEVER, "no error: it may be a trial"),
    "repeated_rows": Limits("train rows", _ANY, 0.05, 0.5, "most of the training would repeat itself"),
    "contradicting_rows": Limits("train rows", _ANY, 0.01, 0.2, "a tenth of the answers cannot be right"),
    "lopsided_labels": Limits("train rows", 0.8, 0.95, 0.999, "there is nothing to tell apart"),
    "rare_labels": Limits("labels", _ANY, 0.2, NEVER, "no error: the others can be learnt"),
    "label_typos": Limits("labels", _ANY, _ANY, NEVER, "no error: names can be alike and mean two things"),
    "no_numbers": Limits("rows", _ANY, _ANY, _ANY, _STOPS),
    "repeated_choices": Limits("train rows", _ANY, 0.01, 0.2, "every fifth row has no single right answer"),
    "unknown_labels": Limits("dev rows", _ANY, _ANY, _ANY, "finetune and evaluate stop at them"),
    "dev_in_train": Limits("dev rows", _ANY, 0.01, 0.1, "the dev score would measure memory"),
    "long_rows": Limits("train rows", 0.01, 0.1, NEVER, "no error: the beginning can be enough"),
}
"""Each finding's limits by its name; docs/doctor.md shows the same table."""
