"""Corpora for the tests of the doctor: made-up prose without any fault, and what is found in a corpus."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from bertsmith.checkup.finding import Finding
from bertsmith.recipes.config import DoctorConfig
from bertsmith.recipes.doctor import doctor

_TEXT = (
    "the a of and to in was that he she it had for with his her on at by from they were which this "
    "ship river morning garden letter window soldier market winter answer brother village music road "
    "walked carried opened waited followed answered remembered promised watched returned built lost "
    "old quiet heavy bright narrow distant gentle sudden broken early golden strange empty careful"
)
WORDS = _TEXT.split()


def sentence(draw: random.Random, words: int = 14) -> str:
    return " ".join(draw.choice(WORDS) for _ in range(words)).capitalize() + "."


def paragraph(draw: random.Random, sentences: int = 4) -> str:
    return " ".join(sentence(draw) for _ in range(sentences))


def prose(documents: int = 40, paragraphs: int = 4, seed: int = 0) -> list[list[str]]:
    """Return documents of paragraphs; no paragraph is there twice."""
    draw = random.Random(seed)
    return [[paragraph(draw) for _ in range(paragraphs)] for _ in range(documents)]


def write(path: Path, documents: list[list[str]]) -> Path:
    path.write_text("\n\n".join("\n".join(lines) for lines in documents) + "\n", encoding="utf-8")
    return path


def findings(**settings: Any) -> dict[str, dict[str, Any]]:
    """Return what the doctor finds, by name."""
    found = doctor(DoctorConfig(**settings))["findings"]
    assert len({finding["name"] for finding in found}) == len(found), "one finding of each name"
    return {finding["name"]: finding for finding in found}


def named(found: list[Finding]) -> dict[str, Finding]:
    return {finding.name: finding for finding in found}
