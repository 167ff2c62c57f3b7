"""The English that every machine with Python has: documentation inside the installed code.

Doc-strings are read from the source files (nothing is imported or run): a module's doc-strings are one
document, their paragraphs its lines. Code examples, signatures and field lists are left out.
"""

from __future__ import annotations

import ast
import inspect
import re
import sysconfig
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

_CODE = re.compile(
    r"^\s*(>>>|\.\.\. |\$ |@|#|:\w+|\.\. |[-=~^*+_`|]{3,}|\w+\s*=\s|def |class |import |from \w+ import)"
)
_FIELD = re.compile(r"^\s*([*\w.`]+(,\s*[*\w.`]+)*\s*(\(.*?\))?\s*:(\s|$)|[-*+•]\s|\d+[.)]\s)")
_MARKUP = re.compile(r":\w+:`~?([^`]*)`|``([^`]*)``|`([^`<]*)(?:<[^>]*>)?`_*")
_SKIPPED_FOLDERS = frozenset(
    {"tests", "test", "testing", "idlelib", "lib2to3", "__pycache__", "_vendor", "vendored"}
)

STANDARD_LIBRARY = Path(sysconfig.get_paths()["stdlib"])


@dataclass(frozen=True)
class DocumentedModule:
    """The prose of one module.

    Attributes:
        library: the top-level package or module it belongs to ("python" for the standard library).
        name: dotted path of the module.
        paragraphs: its prose, in source order, without repetition.
    """

    library: str
    name: str
    paragraphs: tuple[str, ...]


def documented_modules(roots: Sequence[Path] | None = None) -> Iterator[DocumentedModule]:
    """Yield the documented modules of this Python installation, sorted by folder and name.

    A paragraph that occurs in several modules is yielded once.

    Args:
        roots: folders of source files; default: the standard library and the installed packages.
    """
    files = list(_source_files(roots or [STANDARD_LIBRARY, Path(sysconfig.get_paths()["purelib"])]))
    seen: set[str] = set()
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        found = pool.map(_module_paragraphs, [file for file, _, _ in files], chunksize=64)
        for (_, library, name), paragraphs in zip(files, found, strict=True):
            fresh = tuple(dict.fromkeys(paragraph for paragraph in paragraphs if paragraph not in seen))
            seen.update(fresh)
            if fresh:
                yield DocumentedModule(library, name, fresh)


def _source_files(roots: Sequence[Path]) -> Iterator[tuple[Path, str, str]]:
    """Yield (file, library, dotted name) of every source file."""
    for root in roots:
        for file in sorted(root.rglob("*.py")):
            parts = file.relative_to(root).with_suffix("").parts
            if parts[0] in ("site-packages", "dist-packages") or _SKIPPED_FOLDERS & set(parts):
                continue
            yield file, "python" if root == STANDARD_LIBRARY else parts[0], ".".join(parts)


def _module_paragraphs(file: Path) -> list[str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, RecursionError, OSError):
        return []  # template and data files carry .py as well
    if file.parent.name == "pydoc_data":
        constants = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
        texts = [value for value in constants if isinstance(value, str)]
    else:
        texts = list(_docstrings(tree))
    return [paragraph for text in texts for paragraph in prose_paragraphs(text)]


def _docstrings(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    yield ast.get_docstring(node, clean=False) or ""
    for child in node.body:
        if isinstance(child, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from _docstrings(child)


def prose_paragraphs(docstring: str) -> list[str]:
    """Return the paragraphs of a doc-string that are prose, each on one line, without markup."""
    paragraphs = []
    for block in re.split(r"\n\s*\n", inspect.cleandoc(docstring)):
        lines = block.splitlines()
        if any(_CODE.match(line) or _FIELD.match(line) for line in lines):
            continue
        text = " ".join(" ".join(lines).split())
        text = _MARKUP.sub(lambda match: next(filter(None, match.groups()), ""), text)
        if len(text.split()) >= 6 and text[-1] in ".!?" and text[0].isupper():
            paragraphs.append(text)
    return paragraphs
