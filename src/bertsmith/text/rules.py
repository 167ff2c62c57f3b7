"""How WordPiece cleans a text and splits it into words: by the rules of tokenizers, or by the original's.

Both are steps of the engine, so that places in the text stay known and tokenizer.json holds them.
Source: tokenization.py, BasicTokenizer and the functions below it.
"""

from __future__ import annotations

from tokenizers import Regex, normalizers, pre_tokenizers

from bertsmith.text.config import TokenizerConfig

_IDEOGRAPHS = (
    r"\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2B73F}\x{2B740}-\x{2B81F}"
    r"\x{2B820}-\x{2CEAF}\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F}"
)
_PUNCTUATION = r"!-/:-@\[-`{-~\p{P}"  # all of ASCII that is neither letter, digit nor space
_DROPPED = r"[\x{0}\x{FFFD}\p{Cc}\p{Cf}&&[^\t\n\r]]"
_LAST_SIGMA = r"\p{Cased}\p{Case_Ignorable}*\KΣ(?!\p{Case_Ignorable}*\p{Cased})"


def normalizer_of(config: TokenizerConfig) -> normalizers.Normalizer:
    """Return what cleans, lower-cases and strips a text before it is split."""
    if config.rules == "tokenizers":
        return normalizers.BertNormalizer(
            clean_text=True,
            handle_chinese_chars=config.split_chinese,
            strip_accents=config.strip_accents,
            lowercase=config.lowercase,
        )
    steps: list[normalizers.Normalizer] = [normalizers.Replace(Regex(_DROPPED), "")]
    if config.lowercase:  # as str.lower: the engine's step takes letters one by one
        steps += [normalizers.Replace(Regex(_LAST_SIGMA), "ς"), normalizers.Lowercase()]
    if config.lowercase if config.strip_accents is None else config.strip_accents:
        # The engine's table of decompositions is older than this letter.
        steps += [normalizers.Replace("\U00011938", "\U00011935\U00011930"), normalizers.NFD()]
        steps += [normalizers.Replace(Regex(r"\p{Mn}"), "")]
    return normalizers.Sequence(steps)


def splitter_of(config: TokenizerConfig) -> pre_tokenizers.PreTokenizer:
    """Return what splits a normalised text into words."""
    if config.rules == "tokenizers":
        return pre_tokenizers.BertPreTokenizer()
    alone = _PUNCTUATION + _IDEOGRAPHS if config.split_chinese else _PUNCTUATION
    return pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex(f"[{alone}]"), "isolated")]
    )
