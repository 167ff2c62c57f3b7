from __future__ import annotations

from bertsmith.text.documentation import STANDARD_LIBRARY, documented_modules, prose_paragraphs


def test_prose_is_kept_and_the_rest_is_not():
    docstring = """Return the mean of the ``values``, as :func:`statistics.mean` would.

    The sum is divided by the number of values,
    which has to be `positive`.

    Parameters
    ----------
    values : list of float
        The values.

    >>> mean([1, 2])
    1.5

    Too short.

    - a list item that is long enough to be a sentence.

    x = mean(values) is what most people write here.
    """
    assert prose_paragraphs(docstring) == [
        "Return the mean of the values, as statistics.mean would.",
        "The sum is divided by the number of values, which has to be positive.",
    ]


def test_the_standard_library_documents_itself():
    modules = list(documented_modules([STANDARD_LIBRARY]))
    names = [module.name for module in modules]
    assert len(set(names)) == len(names)
    assert {module.library for module in modules} == {"python"}
    topics = next(module for module in modules if module.name == "pydoc_data.topics")
    assert sum(map(len, topics.paragraphs)) > 50_000
    paragraphs = [paragraph for module in modules for paragraph in module.paragraphs]
    assert len(set(paragraphs)) == len(paragraphs)
    assert sum(map(len, paragraphs)) > 500_000
    assert all("\n" not in paragraph and paragraph[-1] in ".!?" for paragraph in paragraphs)


def test_packages_are_told_apart_and_nothing_is_run(tmp_path):
    (tmp_path / "one").mkdir()
    text = "This sentence is long enough to be kept as prose."
    (tmp_path / "one" / "a.py").write_text(f'"""{text}"""\nraise SystemExit\n')
    (tmp_path / "two.py").write_text(
        f'class A:\n    """{text}\n\n    And so is this one, which nobody else has."""\n'
    )
    (tmp_path / "broken.py").write_text("def (")
    found = [
        (module.library, module.name, len(module.paragraphs)) for module in documented_modules([tmp_path])
    ]
    assert found == [("one", "one.a", 1), ("two", "two", 1)]
