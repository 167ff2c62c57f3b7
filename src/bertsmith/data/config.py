"""Settings of pretraining data."""

from __future__ import annotations

from dataclasses import dataclass

from bertsmith.errors import InputError

PAIRINGS = ("nsp", "sop", "full-sentences", "doc-sentences")
LONGEST_INSTANCE = 1 << 16
LONGEST_SPAN_WORDS = 10
# Even lengths from 1 to 10 have mean 5.5; a geometric distribution cut there stays below.
LONGEST_SPAN_MEAN = 5.0


@dataclass(frozen=True)
class PairingConfig:
    """How sentences become instances.

    Attributes:
        pairing: "nsp" (the original's), "sop" (sentence order, ALBERT), "full-sentences" or "doc-sentences"
            (RoBERTa, no second segment).
        seq_len: pieces of the longest instance, [CLS] and [SEP] counted.
        short_seq_prob: share of documents whose target length is drawn from 2..max (nsp and sop).
        random_next_prob: share of instances whose second text is from another document (nsp; always for a
            chunk of one sentence) or whose two texts are swapped (sop).
        passes: how often the corpus is paired anew (the original's dupe_factor repeats pairs).

    Source: create_pretraining_data.py, create_instances_from_document.
    """

    pairing: str = "nsp"
    seq_len: int = 128
    short_seq_prob: float = 0.1
    random_next_prob: float = 0.5
    passes: int = 1

    def __post_init__(self) -> None:
        if self.pairing not in PAIRINGS:
            raise InputError(f"pairing {self.pairing!r} is unknown; take one of {', '.join(PAIRINGS)}")
        if not 8 <= self.seq_len <= LONGEST_INSTANCE:
            raise InputError(
                f"seq-len is {self.seq_len}; instances need at least 8 pieces and at most {LONGEST_INSTANCE}"
            )
        if self.passes < 1:
            raise InputError(f"passes is {self.passes}; it has to be at least 1")
        for name in ("short_seq_prob", "random_next_prob"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise InputError(f"{name} is {getattr(self, name)}; it has to be between 0 and 1")
            if self.pairing.endswith("-sentences") and getattr(self, name) != getattr(type(self), name):
                raise InputError(
                    f"{name} is {getattr(self, name)}, but pairing {self.pairing} has no use for it; "
                    "leave it out"
                )


@dataclass(frozen=True)
class Targets:
    """What is predicted of an instance.

    Attributes:
        pieces: "masked" ones; or all, none masked: "next", each from what stands before it, or "neighbours",
            each twice, from what stands before it and from what stands behind it.
        pairs: whether its two texts belong together, where it has two.
    """

    pieces: str = "masked"
    pairs: bool = True


MASKED_AND_PAIRS = Targets()
"""The original's."""


@dataclass(frozen=True)
class MaskingConfig:
    """How pieces are chosen and replaced for the masked language model.

    Attributes:
        rate: share of an instance's pieces that are predicted; [CLS] and [SEP] count in the size but are
            never chosen.
        max_predictions: at most that many per instance; 0: rate x sequence length, rounded up (20 at 128,
            77 at 512).
        mask_share: of the chosen pieces, share replaced by [MASK].
        same_share: share kept as they are.
        random_share: share replaced by a uniformly drawn piece of the vocabulary.
        random_specials: let a random replacement be a special token, as the original does.
        whole_words: choose whole words; each piece still throws its own coin.
        span_mean: choose spans of so many whole words on average (3.8: SpanBERT's), at most ten, one coin a
            span; 0: no spans.
        dynamic: draw new masks each epoch (false: the original's static masks).

    Source: create_pretraining_data.py, create_masked_lm_predictions; the paper, appendix A.1; spans:
        SpanBERT, arXiv 1907.10529, section 3.1.
    """

    rate: float = 0.15
    max_predictions: int = 0
    mask_share: float = 0.8
    same_share: float = 0.1
    random_share: float = 0.1
    random_specials: bool = False
    whole_words: bool = False
    dynamic: bool = True
    span_mean: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 < self.rate <= 1.0:
            raise InputError(f"masking rate is {self.rate}; it has to be above 0 and at most 1")
        if self.max_predictions < 0:
            raise InputError(f"max_predictions is {self.max_predictions}; it has to be 0 (automatic) or more")
        shares = (self.mask_share, self.same_share, self.random_share)
        if not (min(shares) >= 0 and abs(sum(shares) - 1) <= 1e-6):  # false for NaN as well
            raise InputError(f"mask, same and random shares are {shares}; each at least 0, together 1")
        if self.span_mean != 0.0 and not 1.0 < self.span_mean <= LONGEST_SPAN_MEAN:
            raise InputError(
                f"span_mean is {self.span_mean}; it has to be 0 (no spans), or above 1 and at most "
                f"{LONGEST_SPAN_MEAN}"
            )
        if self.span_mean and self.whole_words:
            raise InputError("whole_words has no use beside span_mean: spans are whole words; leave it out")
