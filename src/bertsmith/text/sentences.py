"""Splitting paragraphs into sentences: English and Chinese, also mixed.

A sentence ends at closing punctuation, with the quotes and brackets that close after it, if what follows can
begin another one. The paragraph is only cut, never changed: all its characters but the white space between
sentences come back in their order. ``benchmarks/sentence_splitters.py`` compares this with the libraries on a
sample whose ends were marked by hand.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from bertsmith.text.config import CorpusConfig

_WIDE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_CLOSING = "\"'”’»)\\]}）」』】》〉＂＇_*"
_OPENING = "\"'“‘«(\\[{（「『【《〈＂＇_*¿¡—–\\-"

# An end: Western marks need white space (or a wide character) after them, Chinese ones do not. The looks
# behind let a run of marks be tried once only, so that the time stays linear.
_AFTER_MARK = rf"(?P<closing>[{_CLOSING}]*(?:\[\d+\])*)\s+"
_END = re.compile(
    rf"(?P<wide>[。！？｡]+[。！？｡!?…]*|(?<![!?])[!?]+(?=[{_CLOSING}]*[{_WIDE}“「『《（])"
    rf"|(?<!…)…+(?=[”’」』]))(?P<closed>[{_CLOSING}]*)\s*"
    rf"|(?<![.!?…])(?P<mark>[.!?…]+){_AFTER_MARK}"
)
_MARKS = re.compile("[.!?…。！？｡]+")
_ASCII_END = re.compile(rf"(?P<mark>[.!?](?<![.!?]{{2}})[.!?]*){_AFTER_MARK}(?P<wide>(?!))?")
"""What is left of ``_END`` in ASCII; it begins with a set of characters, for which ``re`` scans fast."""
_FIRST_LETTER = re.compile(rf"[{_OPENING}\s]*(\S?)")
_NEXT_WORD = re.compile(rf"[{_OPENING}\s]*([^\W\d_]+(?:['’][a-z]+)?)")
_WORD_BEFORE = re.compile(r"(?:[^\W_]+\.)*[^\W_]*\Z")
_ITEM_NUMBER = re.compile(rf"[{_OPENING}\s]*(?:\d{{1,3}}|[A-Za-z]|[IVXLCivxlc]+)")
_SMALL_NUMERAL = re.compile("[ivxlc]+|[a-z]")
_INITIAL = re.compile(r"[^\W\d_]\.")

# "他喊道" after a closed quotation belongs to the same sentence; "他说：" before a new one does not.
_WIDE_SPEECH_TAG = re.compile(
    r"[^，。！？：；、“”「」\s]{0,10}?(?:说(?!法|明)|道(?!理|路)|问(?!题)|喊|叫|答(?!案)|嚷|骂)(?![说道着]*[：:])"
)
_WIDE_CONTINUATION = re.compile("[、，；：,;:。！？的地得之和与及]")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_TITLES = _words(
    "adm brig capt cmdr col cpl dr fr gen gens gov hon lieut lt maj messrs mgr mlle mme mmes mr mrs ms mt mts"
    " pres prof profs rep rev rt sec sen sgt sig sra st ste supt vs viz cf eg ie e.g i.e"
)
"""Abbreviations that something always follows."""
_BEFORE_NUMBERS = _words(
    "al art c ca cap ch chap chaps cl eq eqs ex fig figs fol lib ll n no nos op p par pl pp pt sect ser v ver"
    " vol vols jan feb mar apr jun jul aug sep sept oct nov dec eph gal cor matt deut thess tim heb"
)
"""Abbreviations when a number follows; otherwise "no." and the like can be words."""
_WITHIN_NAMES = _words(
    "ala ariz ark assn aug ave bart bldg blvd bros calif capt co colo conn corp dec del dept dist ed eds esq"
    " est etc feb fla ft ga hon ill inc ind jan jr kan ky la ltd mass md mich minn miss mo mon mont nat nov"
    " oct okla ont pa penn phil prov rd rom sam sept sq sr tenn tex univ va vt wash wis al approx trans ps"
    " gal cor matt deut thess tim heb"
)
"""Abbreviations that may also end a sentence: it goes on unless a word follows that begins sentences."""
_WITHIN_NAMES_IF_SMALL = _words("etc al approx ed eds")
_ABBREVIATIONS = _TITLES | _BEFORE_NUMBERS | _WITHIN_NAMES
_BEGINNERS = _words(
    "a about above according after again all almost along already also although among an and another any"
    " are as at because before besides between both but by can could despite did do does during each either"
    " even every finally first for four from further furthermore had has have he hence her here his how"
    " however i i'd i'll i'm i've if in indeed instead is it its it's just later let like many may meanwhile"
    " more moreover most my near neither never nevertheless no none nor not nothing now of often on once one"
    " only or other others our over perhaps she should similarly since so some soon still such that that's"
    " the their them then there there's therefore these they this those though three through thus to today"
    " together two under unlike until upon very was we well were what when whenever where whether which"
    " while who whose why will with within without would yes yet you your"
)


def split_sentences(paragraph: str) -> list[str]:
    """Split a paragraph of English or Chinese into its sentences.

    Args:
        paragraph: running text.

    Returns:
        The sentences without surrounding white space, none empty; together they hold every character of the
        paragraph that is no white space, in the same order.
    """
    sentences = []
    start = 0
    for match in _ASCII_END.finditer(paragraph) if paragraph.isascii() else _ends(paragraph):
        if match.end() == len(paragraph):
            break
        if match["wide"] is not None:
            ends = _ends_wide(paragraph, match, start)
        else:
            ends = _ends_western(paragraph, match, start)
        if ends:
            sentences.append(paragraph[start : match.end()].strip())
            start = match.end()
    sentences.append(paragraph[start:].strip())
    return [sentence for sentence in sentences if sentence]


def _ends(paragraph: str) -> Iterator[re.Match[str]]:
    """Yield the matches of ``_END``, which all begin with a mark; most of the text is passed over fast."""
    for run in _MARKS.finditer(paragraph):
        place, end = run.span()
        while place < end:
            match = _END.match(paragraph, place)
            if match:
                yield match
            place = match.end() if match else place + 1


def document_sentences(lines: list[str], config: CorpusConfig) -> list[str]:
    """Return the sentences of a document.

    Args:
        lines: the document's lines.
        config: ``sentences`` says whether lines are split or are sentences already.
    """
    if config.sentences == "line":
        return list(lines)
    return [sentence for line in lines for sentence in split_sentences(line)]


def _ends_wide(paragraph: str, match: re.Match[str], start: int) -> bool:
    """Say whether Chinese closing punctuation ends a sentence."""
    closed = match["closed"]
    if not closed:
        return True
    if closed[-1] in "》〉" or _WIDE_CONTINUATION.match(paragraph, match.end()):
        return False
    if closed[-1] in "）)":  # a remark within a sentence, unless the sentence begins with the bracket
        return max(paragraph.rfind(bracket, start, match.start()) for bracket in "（(") <= start
    is_quotation = closed[-1] in "”’」』\"'"
    return not (is_quotation and _WIDE_SPEECH_TAG.match(paragraph, match.end()))


def _ends_western(paragraph: str, match: re.Match[str], start: int) -> bool:
    """Say whether ``.``, ``!``, ``?`` or an ellipsis before white space ends a sentence."""
    letter = paragraph[match.end()]
    if not letter.isalnum():
        found = _FIRST_LETTER.match(paragraph, match.end())
        assert found is not None, "the pattern matches everywhere"
        letter = found[1]
    if letter == "" or letter.islower() or not (letter.isalnum() or letter in "$£€#§&+"):
        return False
    mark, closing = match.group("mark", "closing")
    if mark != "." or closing.strip(")]_*"):
        return True
    if not letter.isdigit() and _is_plain_word(paragraph, start, match.start()):
        return True
    return not _is_abbreviated(paragraph, match, start, letter.isdigit())


def _is_plain_word(paragraph: str, start: int, end: int) -> bool:
    """Say whether a word that abbreviates nothing ends at ``end``: what the slow rules would find, mostly."""
    space = paragraph.rfind(" ", start, end)
    word = paragraph[space + 1 : end]
    return (
        space > start
        and paragraph[start].isalnum()
        and len(word) > 1
        and word.isalpha()
        and word.lower() not in _ABBREVIATIONS
    )


def _is_abbreviated(paragraph: str, match: re.Match[str], start: int, number_follows: bool) -> bool:
    """Say whether the full stop at ``match`` belongs to a word and the sentence goes on."""
    before = paragraph[max(start, match.start() - 40) : match.start()]
    found = _WORD_BEFORE.search(before, before.rfind(" ") + 1)  # tried from every place, so from few
    word = found[0] if found else ""
    small = word.lower()
    if _ITEM_NUMBER.fullmatch(paragraph, start, match.start()):
        return True
    if small in _TITLES:
        return not (word.islower() and small in ("sec", "rep", "mt", "gen"))
    if number_follows:
        return small in _BEFORE_NUMBERS or "." in word or bool(_SMALL_NUMERAL.fullmatch(word))
    if len(word) == 1 and word.isalpha():
        return _is_initial(word, before, paragraph, match.end())
    if small in (_WITHIN_NAMES if word.istitle() else _WITHIN_NAMES_IF_SMALL):
        return not _begins(paragraph, match.end())
    is_dotted = "." in word and word[0].isalpha() and max(map(len, word.split("."))) <= 3  # "U.S", "p.m"
    return is_dotted and not _begins(paragraph, match.end())


def _is_initial(letter: str, before: str, paragraph: str, place: int) -> bool:
    """Say whether a single letter with a full stop is an initial; "than I." and "vitamin C. The" are not."""
    if letter == "I" and before[:-1].rstrip()[-1:].islower():
        return bool(_INITIAL.match(paragraph, place))
    return letter.isupper() and not _begins(paragraph, place)


def _begins(paragraph: str, place: int) -> bool:
    """Say whether a word that begins sentences stands at a place."""
    found = _NEXT_WORD.match(paragraph, place)
    if found is None or _INITIAL.match(paragraph, found.start(1)):
        return False
    word = found[1].lower().replace("’", "'")
    return word in _BEGINNERS or (len(word) > 5 and word.endswith("ly"))
