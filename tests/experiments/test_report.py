"""The report of real runs: complete, safe whatever the data says, whole whatever a run lacks."""

from __future__ import annotations

import json
import random
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from bertsmith import cli
from bertsmith.errors import InputError
from bertsmith.experiments.fine_tuned import by_seed
from bertsmith.experiments.report import report
from bertsmith.experiments.runs import Run, read_run
from bertsmith.recipes.config import ReportConfig
from bertsmith.recipes.finetune import finetune
from tests.recipes import tiny

PARTS = 4  # of what may be missing, each part once
VOID = {"meta", "br", "img", "path", "use", "rect", "circle"}


class Page(HTMLParser):
    """A page as elements: their names, attributes and visible text; every element has to end in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.words: list[str] = []
        self.tables: list[list[list[str]]] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self._open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] != "style":
            self.words.append(data)
        if any(tag in ("td", "th") for tag in self._open):
            self.tables[-1][-1][-1] += data

    @property
    def text(self) -> str:
        return "".join(self.words)


def predictions(run: Path) -> list[dict[str, Any]]:
    content = (run / "predictions-dev.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in content.rstrip("\n").split("\n")]  # a text may hold U+2028


def page_of(tmp_path: Path, *runs: Path, **settings: Any) -> Page:
    out = tmp_path / "report.html"
    report(ReportConfig(runs=[str(run) for run in runs], out=str(out), **settings))
    return Page(out.read_text(encoding="utf-8"))


def test_nothing_is_asked_for_from_outside_and_nothing_runs(
    classified: Path, regressed: Path, pretrained: Path, tmp_path: Path
) -> None:
    page = page_of(tmp_path, classified, regressed, pretrained)
    assert "script" not in page.names
    assert "img" not in page.names
    assert "link" not in page.names
    for name, value in page.attributes:
        assert not name.startswith("on")
        if name in ("src", "href", "xlink:href", "action", "data"):
            assert value.startswith("#")
        if name != "content":
            assert "http" not in value
    assert set(re.findall(r"url\(([^)]*)\)", (tmp_path / "report.html").read_text())) <= {
        f"#{value}" for name, value in page.attributes if name == "id"
    }
    policy = next(value for name, value in page.attributes if value.startswith("default-src"))
    assert policy.startswith("default-src 'none'")


def test_texts_of_the_data_are_shown_as_they_are(classified: Path, tmp_path: Path) -> None:
    page = page_of(tmp_path, classified)
    lines = predictions(classified)
    wrong = [line for line in lines if line["label"] != line["gold"]]
    errors = next(table for table in page.tables if table[0][:2] == ["line", "text"])
    assert {int(row[0]) for row in errors[1:]} == {line["line"] for line in wrong}
    assert len(wrong) > 3
    for row in errors[1:]:
        line = next(line for line in wrong if line["line"] == int(row[0]))
        assert row[1].startswith(line["texts"][0].replace("\x07", "\N{SYMBOL FOR BELL}").replace("\r", ""))
        assert (row[2], row[3]) == (line["gold"], line["label"])
    shown = " ".join(row[1] for row in errors)
    assert "<script>document.title = 'owned'</script>" in shown
    assert "坏的句子，不是好的 good 𠮷" in shown
    assert "owned" in page.text


def test_confusion_and_labels_are_those_of_scikit_learn(classified: Path, tmp_path: Path) -> None:
    page = page_of(tmp_path, classified)
    lines = predictions(classified)
    gold, predicted = [line["gold"] for line in lines], [line["label"] for line in lines]
    labels = json.loads((classified / "metrics.json").read_text())["labels"]
    matrix = next(table for table in page.tables if table[0] == ["", *labels])
    assert [row[0] for row in matrix[1:]] == labels
    expected = confusion_matrix(gold, predicted, labels=labels)
    assert (np.array([list(map(int, row[1:])) for row in matrix[1:]]) == expected).all()
    each = next(table for table in page.tables if table[0][:2] == ["label", "rows"])
    scores = precision_recall_fscore_support(gold, predicted, labels=labels, zero_division=0)
    for row, precision, recall, f1, rows in zip(each[1:], *scores, strict=True):
        assert row[1] == str(rows)
        assert row[3:] == [f"{100 * precision:.1f} %", f"{100 * recall:.1f} %", f"{100 * f1:.1f} %"]


def test_what_the_figures_hang_on_is_said(classified: Path, tmp_path: Path) -> None:
    text = page_of(tmp_path, classified).text
    assert "1 of 60 dev rows are longer than the model reads and were cut." in text
    assert "Epoch and seed were chosen on the dev rows" in text
    assert "bertsmith finetune --task classify" in text
    assert "(kept)" in text
    figures = json.loads((classified / "metrics.json").read_text())
    assert f"{figures['mean']['accuracy']:.4f}± {figures['std']['accuracy']:.4f}, mean of 2 seeds" in text
    assert f"{figures['calibration']['error_as_trained']:.3f}" in text
    assert f"{figures['tuned']['temperature']:.3f}" in text


def test_a_regression_has_a_scatter_and_distances(regressed: Path, tmp_path: Path) -> None:
    page = page_of(tmp_path, regressed)
    assert "predicted value" in page.text
    errors = next(table for table in page.tables if table[0][:2] == ["line", "text"])
    assert errors[1][4].startswith("off by ")
    assert "One seed" in page.text


def test_a_pretraining_run_stands_against_its_levels(pretrained: Path, tmp_path: Path) -> None:
    page = page_of(tmp_path, pretrained)
    figures = json.loads((pretrained / "metrics.json").read_text())
    assert f"ln V {figures['uniform_entropy']:.2f}" in page.text
    assert f"word frequencies {figures['heldout_unigram_entropy']:.2f}" in page.text
    sources = next(table for table in page.tables if table[0][0] == "source")
    assert [row[0] for row in sources[1:]] == ["litany", "noise"]
    assert float(sources[1][1]) == pytest.approx(figures["heldout_mlm_loss_litany"], abs=1e-4)
    assert "tokens a second" in page.text
    assert "bertsmith pretrain --data" in page.text


def test_runs_stand_side_by_side(classified: Path, pretrained: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(classified, other)
    config = (other / "config.yaml").read_text().replace("batch_size: 16", "batch_size: 8")
    (other / "config.yaml").write_text(config)
    figures = json.loads((other / "metrics.json").read_text())
    figures["data_sha256"]["dev"] = "0" * 64
    (other / "metrics.json").write_text(json.dumps(figures))
    page = page_of(tmp_path, classified, other, pretrained)
    table = next(table for table in page.tables if table[0][:2] == ["run", "task"])
    assert [row[0] for row in table[1:]] == ["A · classified0/run", f"B · {tmp_path.name}/other"]
    assert table[1][2:5] == [
        f"{figures['mean'][name]:.4f} ± {figures['std'][name]:.4f}" for name in figures["mean"]
    ]
    differences = next(table for table in page.tables if table[0] == ["setting", "A", "B"])
    assert differences[1:] == [["batch_size", "16", "8"]]
    assert "different dev rows: their figures do not compare" in page.text


def test_without_errors_no_text_of_the_data_is_shown(classified: Path, tmp_path: Path) -> None:
    text = page_of(tmp_path, classified, errors=0).text
    assert "owned" not in text
    assert "坏" not in text


def remove(content: Any, path: tuple[Any, ...]) -> Any:
    """Return JSON content without the value at a path."""
    if len(path) == 1:
        return {name: value for name, value in content.items() if name != path[0]}
    return content | {path[0]: remove(content[path[0]], path[1:])}


def test_anything_may_be_missing_or_null(classified: Path, pretrained: Path, tmp_path: Path) -> None:
    for run in (classified, pretrained):
        copy = tmp_path / run.parent.name
        shutil.copytree(run, copy, ignore=shutil.ignore_patterns("checkpoints", "*.safetensors", "*.jsonl"))
        lines = (run / "predictions-dev.jsonl").read_text().splitlines() if run is classified else []
        (copy / "predictions-dev.jsonl").write_text("\n".join(lines[-9:]))
        (copy / "metrics.jsonl").write_text((run / "metrics.jsonl").read_text().splitlines()[0])
        whole = json.loads((copy / "metrics.json").read_text())
        paths: list[tuple[str, ...]] = [(name,) for name in whole]
        paths += [(name, inner) for name in whole if isinstance(whole[name], dict) for inner in whole[name]]
        random.Random(1).shuffle(paths)
        for part in range(PARTS):
            content = whole
            for path in sorted(paths[part::PARTS], key=len, reverse=True):
                content = remove(content, path) if len(path) == 2 else content | {path[0]: None}
            (copy / "metrics.json").write_text(json.dumps(content))
            page_of(tmp_path, copy)


def test_a_run_that_is_not_finished_is_shown_as_far_as_it_is(
    classified: Path, pretrained: Path, tmp_path: Path
) -> None:
    for run in (classified, pretrained):
        copy = tmp_path / run.parent.name
        copy.mkdir()
        lines = (run / "metrics.jsonl").read_text().splitlines()
        (copy / "metrics.jsonl").write_text("\n".join(lines[: len(lines) // 2]) + '\n{"st')
        text = page_of(tmp_path, copy).text
        assert "The run is not finished" in text
        assert "Metrics.json is missing." in text
        assert f"1 of {len(lines) // 2 + 1} lines of metrics.jsonl are broken" in text
        assert "the command is not known" in text
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "metrics.jsonl").write_text("")
    assert "Nothing was logged" in page_of(tmp_path, empty).text


def test_lone_surrogates_and_long_texts_can_be_shown(classified: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(classified, copy)
    line = {"line": 2, "gold": "pos", "label": "neg", "probabilities": {"neg": 1.0, "pos": 0.0}}
    texts = ["\ud800 lone", "x" * 100_000, "\0 nothing"]
    (copy / "predictions-dev.jsonl").write_text(json.dumps(line | {"texts": texts}))
    text = page_of(tmp_path, copy).text
    assert "? lone" in text
    assert "… (100,000 characters)" in text
    assert "\N{SYMBOL FOR NULL} nothing" in text
    assert (tmp_path / "report.html").stat().st_size < 400_000


def test_what_cannot_be_a_report_is_refused(classified: Path, tmp_path: Path) -> None:
    for out, problem in (("report.json", "ends in .html"), ("a.html", "is a directory")):
        (tmp_path / "a.html").mkdir(exist_ok=True)
        with pytest.raises(InputError, match=problem):
            report(ReportConfig(runs=[str(classified)], out=str(tmp_path / out)))
    with pytest.raises(InputError, match="errors is -1"):
        report(ReportConfig(runs=[str(classified)], out=str(tmp_path / "b.html"), errors=-1))
    assert not (tmp_path / "b.html").exists()


def test_the_verb(classified: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "deep" / "r.html"
    assert cli.run(["report", str(classified), "--out", str(out), "--title", "A & <b>", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == {
        "out": str(out),
        "runs": [{"path": str(classified), "kind": "fine-tuning", "problems": []}],
    }
    assert "<title>A &amp; &lt;b&gt;</title>" in out.read_text()
    assert cli.run(["report", str(tmp_path / "none"), "--out", str(out)]) == 2
    assert cli.run(["report", "--out", str(out)]) == 2
    messages = capsys.readouterr().err.strip().splitlines()
    assert len(messages) == 2
    assert "no such directory" in messages[0]


def test_the_same_runs_give_the_same_page(classified: Path, tmp_path: Path) -> None:
    page_of(tmp_path, classified)
    first = (tmp_path / "report.html").read_bytes()
    page_of(tmp_path, classified)
    assert (tmp_path / "report.html").read_bytes() == first


def test_a_grid_shows_its_points_and_the_kept_ones_curves(tmp_path: Path) -> None:
    data = tiny.write_csv(tmp_path / "rows.csv", tiny.make_rows(80))
    model = tiny.save_model(tmp_path / "start")
    finetune(
        tiny.config(model, data, tmp_path / "run", epochs=2, seeds=2, batch_size=32, grid=["batch-size=8,16"])
    )
    page = page_of(tmp_path, tmp_path / "run")
    figures = json.loads((tmp_path / "run" / "metrics.json").read_text())
    grid = next(table for table in page.tables if table[0][:3] == ["batch_size", "mean", "median"])
    assert [row[0] for row in grid[1:]] == ["8", "16"]
    kept = [row[0] for row in grid[1:] if row[-1] == "kept"]
    assert kept == [str(figures["grid_settings"]["batch_size"])]
    steps = 72 // int(kept[0]) * 2
    drawn = Run(tmp_path, "", {}, {}, figures, read_run(tmp_path / "run").events, [], {})
    assert [max(event["step"] for event in events) for events in by_seed(drawn).values()] == [steps, steps]


def test_runs_are_tested_against_the_first(classified: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(classified, other)
    page = page_of(tmp_path, classified, other)
    tests = next(table for table in page.tables if table[0][0] == "kept models")
    assert tests[1][:4] == ["B − A", "accuracy", "+0.0000", "+0.0000 to +0.0000"]
    assert float(tests[1][4]) == 1.0
