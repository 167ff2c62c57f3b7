"""Extending a WordPiece vocabulary by the words of a domain, and what the new pieces were before.

New pieces stand behind the old ones: every old id stays, any number fits, and other programs need nothing but
a longer vocab.txt and longer embeddings. (The [unusedN] entries of BERT's own vocabularies would save rows,
but there are few of them, other vocabularies have none, and some models use theirs.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from bertsmith.errors import InputError
from bertsmith.text.config import TokenizerConfig
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.text.vocabulary import ALPHABET_COVERAGE, count_words, repeated, warn_if_small
from bertsmith.text.wordpiece import CONTINUATION

_FIRST_PLANE = 1 << 16
"""An old piece stands as the character of its id in the planes behind the first, where no white space is."""
_CANDIDATES, _FEWEST_CANDIDATES = 4, 1000
"""Merged candidates for each new piece wanted, for many are only steps on the way to longer ones."""
_LARGEST_SHARE_OF_CHARACTERS = 0.5


def extended_vocabulary(
    lines: Iterable[str], tokenizer: Tokenizer, size: int, min_frequency: int = 2
) -> list[str]:
    """Return a vocabulary that begins with the tokenizer's and goes on with what the text lacks most.

    First come characters that make words unknown, as many as training a vocabulary would take, up to half of
    the new entries; then pieces made by merging the old ones as the text has them, chosen by how many pieces
    they save when every word is cut anew.

    Args:
        lines: text of the domain, read once.
        tokenizer: a WordPiece one.
        size: entries wanted, the old ones included.
        min_frequency: a new piece must occur at least that often.

    Raises:
        InputError: the vocabulary is of another kind, ``size`` is no more than it has, or the text adds
            nothing.
    """
    config = tokenizer.config
    if not isinstance(config, TokenizerConfig):
        raise InputError(
            "vocab: only WordPiece vocabularies can be extended, and the model's is byte-level BPE"
        )
    if size <= tokenizer.vocab_size:
        raise InputError(
            f"vocab: size is {size}, but the model's vocabulary has {tokenizer.vocab_size} entries; give more"
        )
    words = count_words(lines, config)
    wanted = size - tokenizer.vocab_size
    characters = _missing_characters(words, tokenizer, min_frequency)
    new = characters[: max(1, round(_LARGEST_SHARE_OF_CHARACTERS * wanted))]
    wider = Tokenizer([*tokenizer.vocab, *new], config)
    candidates = max(_CANDIDATES * wanted, _FEWEST_CANDIDATES)
    merged = _merged(words, wider, candidates, min_frequency)
    new += _most_saving(words, wider, merged, min_frequency)[: wanted - len(new)]
    if not new:
        raise InputError(
            "vocab: the corpus holds no piece that the model's vocabulary lacks; nothing to extend"
        )
    warn_if_small(tokenizer.vocab_size + len(new), size, min_frequency)
    return [*tokenizer.vocab, *new]


def _missing_characters(words: dict[str, int], tokenizer: Tokenizer, min_frequency: int) -> list[str]:
    """Return single characters that make words unknown, the most frequent first.

    As many as leave no more of the text out than training a vocabulary does.
    """
    known = set(tokenizer.vocab)
    missing: Counter[str] = Counter()
    for word, count in words.items():
        if tokenizer.unk_id in tokenizer.encode(word):
            for place, character in enumerate(word):
                piece = CONTINUATION + character if place else character
                if piece not in known:
                    missing[piece] += count
    left = missing.total()
    allowed = (1 - ALPHABET_COVERAGE) * sum(len(word) * count for word, count in words.items())
    chosen = []
    for piece in sorted(missing, key=lambda piece: (-missing[piece], piece)):
        if left <= allowed or missing[piece] < min_frequency:
            break
        chosen.append(piece)
        left -= missing[piece]
    return chosen


def _merged(words: dict[str, int], tokenizer: Tokenizer, number: int, min_frequency: int) -> list[str]:
    """Return pieces made by merging neighbours, the most frequent pair of pieces first."""
    cut: Counter[str] = Counter()
    for word, count in words.items():
        ids = tokenizer.encode(word)
        if tokenizer.unk_id not in ids:
            cut["".join(chr(_FIRST_PLANE + id) for id in ids)] += count
    old = sorted({character for word in cut for character in word})
    engine = tokenizers.Tokenizer(models.BPE())
    engine.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(
        vocab_size=len(old) + number, min_frequency=min_frequency, initial_alphabet=old, show_progress=False
    )
    engine.train_from_iterator(repeated(dict(sorted(cut.items()))), trainer)
    places = engine.get_vocab()
    pieces = [
        _concatenated([tokenizer.token(ord(character) - _FIRST_PLANE) for character in merge])
        for merge in sorted(places, key=places.__getitem__)
        if len(merge) > 1
    ]
    known = set(tokenizer.vocab)
    return [piece for piece in dict.fromkeys(pieces) if piece not in known]


def _concatenated(pieces: Sequence[str]) -> str:
    return pieces[0] + "".join(piece.removeprefix(CONTINUATION) for piece in pieces[1:])


def _most_saving(
    words: dict[str, int], tokenizer: Tokenizer, candidates: list[str], min_frequency: int
) -> list[str]:
    """Return the candidates by the number of pieces that each saves, most first, when all may be used."""
    config = tokenizer.config
    everything = Tokenizer([*tokenizer.vocab, *candidates], config)
    used: Counter[int] = Counter()
    for word, count in words.items():
        for id in everything.encode(word):
            used[id] += count
    saved = {}
    for place, piece in enumerate(candidates, start=tokenizer.vocab_size):
        cuts = pieces_of(piece, tokenizer)
        if used[place] >= min_frequency and cuts is not None:
            saved[piece] = used[place] * (len(cuts) - 1)
    return sorted(saved, key=lambda piece: -saved[piece])


def pieces_of(piece: str, tokenizer: Tokenizer) -> list[int] | None:
    """Return the ids of the pieces that a vocabulary cuts a longer piece into; ``None``: it cannot.

    Args:
        piece: of a word's beginning, or with ``##`` of its inside.
        tokenizer: a WordPiece one, without the piece.
    """
    ids: list[int] = []
    is_inside = piece.startswith(CONTINUATION)
    rest = piece.removeprefix(CONTINUATION)
    while rest:
        for end in range(len(rest), 0, -1):
            part = CONTINUATION + rest[:end] if is_inside else rest[:end]
            if tokenizer.holds(part):
                ids.append(tokenizer.id(part))
                rest, is_inside = rest[end:], True
                break
        else:
            return None
    return ids
