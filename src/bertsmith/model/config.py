"""The architecture of an encoder."""

from __future__ import annotations

from dataclasses import dataclass

from bertsmith.errors import InputError

ACTIVATIONS = ("gelu", "gelu_tanh", "relu")
FAMILIES = ("bert", "roberta")
NORMS = ("post", "pre")
CONTEXTS = ("both", "left")
MIXINGS = ("attention", "lstm")
_LARGEST, _MOST_LAYERS = 1 << 24, 4096  # beyond is a broken file, which no memory holds


@dataclass(frozen=True)
class BertConfig:
    """The shape of a BERT.

    Attributes:
        vocab_size: entries of the vocabulary; 0: taken from the data's vocabulary.
        hidden_size: width H.
        num_layers: encoder layers L.
        num_heads: attention heads A.
        intermediate_size: width of the feed-forward layer.
        max_positions: longest sequence, in pieces.
        num_segments: segment (token type) embeddings; with 1, both texts of a pair are segment 0.
        activation: "gelu" (erf), "gelu_tanh" (the original's head) or "relu".
        hidden_dropout: after the embeddings and both sublayers.
        attention_dropout: on the attention probabilities.
        layer_norm_eps: inside the root of LayerNorm.
        initializer_std: of the normal, cut at two sigma.
        family: "bert" or "roberta" (no next sentence prediction): as what other programs load the model.
        norm: where LayerNorm stands: "post", after each residual (the original), or "pre", before each
            sublayer and once at the end: trains at higher rates; other tools read it as
            roberta-prelayernorm, which knows "gelu" alone.
        context: what a place sees: "both" sides (the original), or "left", itself and what stands before it:
            a left-to-right model, pretrained to predict the next piece; heads for whole rows then read the
            last place instead of [CLS]. Other tools read it as a decoder.
        mixing: how places learn of one another: "attention", or "lstm": no Transformer but two stacks of
            LSTMs, each half the width, one for each direction, pretrained to predict the piece behind and
            before each place (ELMo's role in the paper's comparisons). Other tools do not know it.
        recurrent_top: heads read a BiLSTM over the last layer's output, as the paper's table 5 puts one on
            left-to-right models for fine-tuning. Other tools know the encoder below it only.
        tied_decoder: the masked language model's decoder is the word embeddings (the original), or a matrix
            of its own, as in some models of other tools.

    Source: modeling.py, BertConfig and BertModel; the paper, section 3. "pre": arXiv 2002.04745; "left": the
        paper, section 5.1.
    """

    vocab_size: int = 0
    hidden_size: int = 768
    num_layers: int = 12
    num_heads: int = 12
    intermediate_size: int = 3072
    max_positions: int = 512
    num_segments: int = 2
    activation: str = "gelu"
    hidden_dropout: float = 0.1
    attention_dropout: float = 0.1
    layer_norm_eps: float = 1e-12
    initializer_std: float = 0.02
    family: str = "bert"
    norm: str = "post"
    context: str = "both"
    mixing: str = "attention"
    recurrent_top: bool = False
    tied_decoder: bool = True

    def __post_init__(self) -> None:
        sizes = (
            "hidden_size",
            "num_layers",
            "num_heads",
            "intermediate_size",
            "max_positions",
            "num_segments",
        )
        for name in sizes:
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; it has to be at least 1")
            largest = _MOST_LAYERS if name == "num_layers" else _LARGEST
            if getattr(self, name) > largest:
                raise InputError(f"{name} is {getattr(self, name)}; it can be at most {largest}")
        if self.vocab_size > _LARGEST:
            raise InputError(f"vocab_size is {self.vocab_size}; it can be at most {_LARGEST}")
        if self.vocab_size < 0:
            raise InputError(f"vocab_size is {self.vocab_size}; it has to be 0 (from the data) or more")
        if self.hidden_size % self.num_heads:
            raise InputError(
                f"hidden_size {self.hidden_size} is not a multiple of num_heads {self.num_heads}; change one"
            )
        if self.activation not in ACTIVATIONS:
            raise InputError(
                f"activation {self.activation!r} is unknown; take one of {', '.join(ACTIVATIONS)}"
            )
        for name in ("hidden_dropout", "attention_dropout"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise InputError(f"{name} is {getattr(self, name)}; it has to be at least 0 and below 1")
        self._check_kind()

    def _check_kind(self) -> None:
        if self.family not in FAMILIES:
            raise InputError(f"family {self.family!r} is unknown; take one of {', '.join(FAMILIES)}")
        if self.family == "roberta" and self.activation != "gelu":
            raise InputError(
                f"activation is {self.activation!r}, but RoBERTa's masked language model always has gelu; "
                "take gelu, or family bert"
            )
        if self.norm not in NORMS:
            raise InputError(f"norm {self.norm!r} is unknown; take one of {', '.join(NORMS)}")
        if self.norm == "pre" and (self.activation != "gelu" or self.family != "bert"):
            raise InputError(
                f"norm is 'pre', which goes with activation gelu and family bert, not {self.activation} and "
                f"{self.family}: other programs know it as a kind of its own, roberta-prelayernorm"
            )
        if self.mixing not in MIXINGS:
            raise InputError(f"mixing {self.mixing!r} is unknown; take one of {', '.join(MIXINGS)}")
        if self.mixing == "lstm" and (self.context, self.norm, self.family) != ("both", "post", "bert"):
            raise InputError(
                "mixing is 'lstm', which goes with context both, norm post and family bert; leave those out"
            )
        if self.mixing == "lstm" and self.hidden_size % 2:
            raise InputError(f"hidden_size is {self.hidden_size}; LSTMs in two directions need an even one")
        if self.context not in CONTEXTS:
            raise InputError(f"context {self.context!r} is unknown; take one of {', '.join(CONTEXTS)}")

    @property
    def sees_both(self) -> bool:
        """Whether a place sees both its sides, so that what stands at it can be masked and guessed."""
        return self.context == "both" and self.mixing == "attention"

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_heads
