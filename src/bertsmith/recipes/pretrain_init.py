"""The model that pretraining starts from: a new one, or one with rows for the pieces that it lacked."""

from __future__ import annotations

import dataclasses
import logging

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertsmith.bundle import Bundle, load_bundle, load_pretraining_model
from bertsmith.data.shards import Instances
from bertsmith.errors import InputError
from bertsmith.model.bert import BertForPreTraining
from bertsmith.model.config import BertConfig
from bertsmith.recipes.pretrain_config import PretrainConfig
from bertsmith.recipes.pretrain_levels import piece_counts, predicted_counts
from bertsmith.text.extension import pieces_of
from bertsmith.text.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

WORD_BIASES = ("zero", "frequency")
_EMBEDDINGS, _BIAS = "bert.embeddings.word.weight", "mlm_head.bias"
_DECODER = "mlm_head.decoder.weight"


def initial_model(config: PretrainConfig, tokenizer: Tokenizer, instances: Instances) -> Bundle | None:
    """Return the model directory to go on from, if there is one, for the data's vocabulary.

    Raises:
        InputError: it cannot be read, or the data's vocabulary neither is the model's nor extends it.
    """
    if config.word_bias not in WORD_BIASES:
        raise InputError(f"word-bias is {config.word_bias!r}; take one of {', '.join(WORD_BIASES)}")
    if config.init is None:
        return None
    if config.word_bias != WORD_BIASES[0]:
        raise InputError(f"--word-bias {config.word_bias} would be ignored: --init has a bias; leave it out")
    bundle = load_bundle(config.init)
    if bundle.tokenizer.identity() == tokenizer.identity():
        return bundle
    old = bundle.tokenizer.vocab
    if tokenizer.config != bundle.tokenizer.config or tokenizer.vocab[: len(old)] != old:
        raise InputError(
            f"{config.data} was prepared with another vocabulary (or other settings of it) than the model's; "
            f"prepare it with --vocab {config.init}, or with an extension of it (vocab --extend)"
        )
    return extended(bundle, tokenizer, piece_counts(instances, tokenizer.vocab_size))


def first_model(architecture: BertConfig, initial: Bundle | None) -> BertForPreTraining:
    """Return the model before the first step: with random weights, or those to go on from."""
    if initial is None:
        return BertForPreTraining(architecture)
    return load_pretraining_model(dataclasses.replace(initial, config=architecture))


def start_word_bias(
    model: BertForPreTraining, config: PretrainConfig, instances: Instances, tokenizer: Tokenizer
) -> None:
    """Set the bias of the word scores as ``config.word_bias`` says, in place.

    With "frequency" it is the logarithm of each piece's share of the pieces that masks choose, so the loss
    begins at the unigram level instead of ln V.
    """
    if config.word_bias != "frequency":
        return
    counts = predicted_counts(piece_counts(instances, tokenizer.vocab_size), tokenizer, config.masking)
    shares = np.ones(model.config.vocab_size)
    shares[: len(counts)] += counts
    with torch.no_grad():
        model.mlm_head.bias.copy_(torch.from_numpy(np.log(shares / shares.sum())))


def extended(bundle: Bundle, tokenizer: Tokenizer, counts: NDArray[np.int64]) -> Bundle:
    """Return a model with rows for new pieces, made of those of the pieces that each was before.

    The embedding is their mean, so a new word begins where its context used to see it. The masked language
    model's output bias is their mean too, lowered by how much rarer the new piece is than they were: by the
    mean alone every new word would be expected as often as its parts (docs/tokenizers.md has figures). A
    piece that could not be written before, such as a new character, is made the same way of all old pieces.

    Args:
        bundle: a model; its own vocabulary may be shorter than its embeddings, whose spare rows are used.
        tokenizer: its vocabulary begins with the model's.
        counts: ``(vocab,)``, how often each piece of the new vocabulary occurs in the data.
    """
    old = bundle.tokenizer
    cuts = [pieces_of(piece, old) for piece in tokenizer.vocab[old.vocab_size :]]
    usual = [id for id in range(old.vocab_size) if id not in old.special_ids]
    parts = [cut or usual for cut in cuts]
    state = dict(bundle.state)
    for name in (_EMBEDDINGS, _DECODER):
        if name in state:
            state[name] = _with_means(state[name], old.vocab_size, parts)
    if _BIAS in state:
        bias = _with_means(state[_BIAS], old.vocab_size, parts)
        bias[old.vocab_size : tokenizer.vocab_size] += _rarity(counts, cuts, usual)
        state[_BIAS] = bias
    unwritable = sum(cut is None for cut in cuts)
    logger.warning(
        "%s: %d new pieces: %d start as the mean of their old pieces, %d that could not be written before as "
        "the mean of all",
        *(bundle.directory, len(cuts), len(cuts) - unwritable, unwritable),
    )
    config = dataclasses.replace(bundle.config, vocab_size=state[_EMBEDDINGS].shape[0])
    return dataclasses.replace(bundle, config=config, tokenizer=tokenizer, state=state)


def _rarity(counts: NDArray[np.int64], cuts: list[list[int] | None], usual: list[int]) -> Tensor:
    """Return the logarithm of each new piece's frequency over the (geometric) mean of its old pieces'."""
    start = len(counts) - len(cuts)
    before = counts[:start].astype(np.float64)  # as often as the old vocabulary would have had them
    for count, cut in zip(counts[start:], cuts, strict=True):
        np.add.at(before, cut or [], count)
    logarithms = np.log(before + 1)
    means = np.array([logarithms[cut or usual].mean() for cut in cuts])
    return torch.from_numpy(np.log(counts[start:] + 1) - means).float()


def _with_means(rows: Tensor, start: int, parts: list[list[int]]) -> Tensor:
    """Return rows with means of some of them from ``start`` on; later rows that are left over stay."""
    means = torch.stack([rows[ids].mean(dim=0) for ids in parts])
    return torch.cat([rows[:start], means, rows[start + len(parts) :]])
