"""Fine-tuning on words: learned, evaluated, predicted and written back, with the same figures everywhere."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from bertsmith import cli, predictor
from bertsmith.bundle import load_bundle
from bertsmith.errors import InputError
from bertsmith.recipes.config import EvaluateConfig, PredictConfig
from bertsmith.recipes.evaluate import evaluate
from bertsmith.recipes.finetune import finetune
from bertsmith.recipes.predict import predict
from bertsmith.tasks.entities import Entity, tags_of
from bertsmith.training.config import OptimizerConfig
from tests.recipes import tiny
from tests.tasks.test_entities import conlleval

KINDS = {"good": "SIGN", "fine": "SIGN", "bad": "FLAW", "poor": "FLAW"}
MORE = {"SIGN": "wordd", "FLAW": "worde"}


def sentences(number: int, seed: int) -> list[tuple[list[str], list[Entity]]]:
    """Words of which some are entities, of one word or two."""
    draw = random.Random(seed)
    found = []
    for _ in range(number):
        words: list[str] = []
        entities = []
        for _ in range(draw.randint(2, 6)):
            word = draw.choice([*KINDS, "worda", "wordb", "wordc"])
            start = len(words)
            words += [word, MORE[KINDS[word]]] if word in KINDS and draw.random() < 0.4 else [word]
            if word in KINDS:
                entities.append(Entity(start, len(words), KINDS[word]))
        found.append((words, entities))
    return found


def write_columns(path: Path, rows: list[tuple[list[str], list[Entity]]], scheme: str) -> Path:
    lines = []
    for number, (words, entities) in enumerate(rows):
        if number % 4 == 0:
            lines.append("-DOCSTART- -X- O\n")
        tags = tags_of(entities, len(words), scheme)
        lines.append("".join(f"{word} X {tag}\n" for word, tag in zip(words, tags, strict=True)))
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def write_spans(path: Path, rows: list[tuple[list[str], list[Entity]]]) -> Path:
    with open(path, "w", encoding="utf-8") as file:
        for words, entities in rows:
            starts = [sum(len(word) + 1 for word in words[:place]) for place in range(len(words))]
            spans = [[starts[e.start], starts[e.end - 1] + len(words[e.end - 1]), e.label] for e in entities]
            file.write(json.dumps({"text": " ".join(words), "spans": spans}) + "\n")
    return path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tagging")
    tiny.save_model(folder / "pretrained")
    write_columns(folder / "train.txt", sentences(120, 0), "iob1")
    write_columns(folder / "dev.txt", sentences(40, 1), "bioes")
    write_spans(folder / "dev.jsonl", sentences(40, 1))
    return folder


def settings(place: Path, out: str, **changes: Any) -> Any:
    values = {"task": "tag", "dev": str(place / "dev.txt"), "batch_size": 4, "seq_len": 32, "epochs": 10}
    return tiny.config(place / "pretrained", place / "train.txt", place / out, **(values | changes))


@pytest.fixture(scope="module")
def model(place: Path) -> Path:
    finetune(settings(place, "run"))
    return place / "run" / "model"


def test_it_learns_and_leaves_what_others_need(place: Path, model: Path) -> None:
    summary = json.loads((place / "run" / "metrics.json").read_text())
    assert summary["dev"]["f1"] > 0.9
    assert summary["main_metric"] == "f1"
    assert summary["dev_details"]["scoring"]["f1"].startswith("conlleval")
    assert summary["labels"] == ["O", "B-FLAW", "I-FLAW", "B-SIGN", "I-SIGN"]
    lines = [json.loads(line) for line in (place / "run" / "predictions-dev.jsonl").read_text().splitlines()]
    rows = sentences(40, 1)
    assert [line["words"] for line in lines] == [words for words, _ in rows]
    assert all(len(line["tags"]) == len(line["words"]) for line in lines)
    assert [[entity["label"] for entity in line["gold"]] for line in lines] == [
        [entity.label for entity in entities] for _, entities in rows
    ]


def test_evaluate_gives_the_same_whatever_the_form_of_the_file(place: Path, model: Path) -> None:
    expected = json.loads((place / "run" / "metrics.json").read_text())["dev"]
    write_columns(place / "iob2.txt", sentences(40, 1), "iob2")
    write_columns(place / "iob1.txt", sentences(40, 1), "iob1")
    for name in ("dev.txt", "iob1.txt", "iob2.txt"):
        found = evaluate(EvaluateConfig(str(model), str(place / name)))
        assert found["metrics"] == pytest.approx(expected)
        assert found["examples"] == 40
    alone = evaluate(EvaluateConfig(str(model), str(place / "dev.jsonl")))  # no documents there
    assert alone["metrics"]["f1"] == pytest.approx(expected["f1"], abs=0.1)


@pytest.mark.parametrize("scheme", [None, "iob2", "iob1"])
def test_c043_the_written_columns_score_as_evaluate_says(
    place: Path, model: Path, scheme: str | None
) -> None:
    out = place / f"out-{scheme}.conll"
    predict(PredictConfig(str(model), str(place / "dev.txt"), str(out), scheme=scheme))
    before, after = (path.read_text().splitlines() for path in (place / "dev.txt", out))
    assert [line.rpartition(" ")[0] for line in after] == before
    blocks = [block.splitlines() for block in out.read_text().split("\n\n") if "-DOCSTART-" not in block]
    columns = [[line.split()[2:] for line in block] for block in blocks]
    back = {"S": "B", "E": "I"}  # the script's letters
    gold = [[back.get(tag[0], tag[0]) + tag[1:] for tag, _ in block] for block in columns]
    predicted = [[back.get(tag[0], tag[0]) + tag[1:] for _, tag in block] for block in columns]
    total, found, correct = conlleval(gold, predicted)
    metrics = json.loads((place / "run" / "metrics.json").read_text())["dev"]
    assert 2 * correct / (total + found) == pytest.approx(metrics["f1"])
    letters = {tag[0] for block in columns for _, tag in block}
    assert letters <= {None: set("OBIES"), "iob2": set("OBI"), "iob1": set("OIB")}[scheme]
    assert scheme is not None or "S" in letters


def test_predict_answers_every_row_of_every_form(place: Path, model: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Worda is good wordd, wordb\n\nbad\n", encoding="utf-8")
    counts = predict(PredictConfig(str(model), str(tmp_path / "a.txt"), str(tmp_path / "a.out.jsonl")))
    lines = [json.loads(line) for line in (tmp_path / "a.out.jsonl").read_text().splitlines()]
    assert counts["rows"] == 3
    assert lines[0]["words"] == ["Worda", "is", "good", "wordd", ",", "wordb"]
    assert "error" in lines[1]
    for entity in lines[0]["entities"]:
        assert "Worda is good wordd, wordb"[entity["start"] : entity["end"]] == entity["text"]
    for name, rows in (("dev.txt", 40), ("dev.jsonl", 40)):
        counts = predict(PredictConfig(str(model), str(place / name), str(tmp_path / "out.jsonl")))
        assert counts["rows"] == rows
    assert (tmp_path / "out.jsonl").read_text().count("\n") == 40
    with pytest.raises(InputError, match=r"--scheme iob1 would be ignored"):
        predict(PredictConfig(str(model), str(place / "dev.txt"), str(tmp_path / "x.jsonl"), scheme="iob1"))
    with pytest.raises(InputError, match="is for columns"):
        predict(PredictConfig(str(model), str(tmp_path / "a.txt"), str(tmp_path / "x.conll")))


def test_the_predictor_tags_texts_and_lists_of_words(model: Path) -> None:
    loaded = predictor.load(model)
    text, words = "worda good\tbad", ["worda", "good", "bad"]
    from_text, from_words, empty = loaded.tag([text, words, ""])
    assert from_text.words == words
    assert from_text.tags == from_words.tags
    assert [(e.label, e.text) for e in from_text.entities] == [("SIGN", "good"), ("FLAW", "bad")]
    assert all(text[e.start : e.end] == e.text and 0 < e.probability <= 1 for e in from_text.entities)
    assert (empty.words, empty.entities, empty.truncated) == ([], [], False)
    alone = loaded.tag([text])[0]
    assert alone.tags == from_text.tags
    assert [e.probability for e in alone.entities] == pytest.approx(
        [e.probability for e in from_text.entities], abs=1e-5
    )
    with pytest.raises(InputError, match=r"write \[text\]"):
        loaded.tag(text)
    with pytest.raises(InputError, match="text number 1 is a int"):
        loaded.tag([text, 3])  # type: ignore[list-item]
    with pytest.raises(InputError, match=r"cannot classify.*it can tag"):
        loaded.classify([text])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"truncation": "head"}, "truncation head does not fit tag; take one of tail"),
        ({"context": "page"}, "context is 'page'"),
        ({"second_text": "x"}, "--second-text x would be ignored"),
        ({"scheme": "iob2"}, "is not as iob2 writes it"),
        ({"task": "classify", "scheme": "iob2"}, "--scheme iob2 would be ignored"),
        ({"n_best": 3}, "--n-best 3 would be ignored"),
        ({"task": "classify", "context": "sentence"}, "--context sentence would be ignored"),
    ],
)
def test_settings_that_would_be_ignored_are_refused(
    place: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        finetune(settings(place, "refused", **change))
    assert not (place / "refused").exists()


def test_c043_the_command_prints_the_mode(
    model: Path, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["evaluate", "--model", str(model), "--data", str(place / "dev.txt")]) == 0
    shown = capsys.readouterr().out
    assert "conlleval" in shown
    assert "strict_f1" in shown


def test_a_feature_based_run_is_trained_evaluated_and_used(place: Path, tmp_path: Path) -> None:
    optimizer = OptimizerConfig(learning_rate=3e-3)
    run = settings(place, "features-run", features="last", epochs=3, batch_size=16, optimizer=optimizer)
    summary = finetune(run)
    assert summary["dev"]["f1"] > 0.9
    assert len(list((place / "features-run" / "features").iterdir())) == 2  # train and dev
    model = place / "features-run" / "model"
    assert "loads the encoder alone" in (model / "README.md").read_text()
    stored = json.loads((model / "task.json").read_text())
    assert (stored["head"], stored["settings"]["features"]) == ("feature-tagging", "last")
    before, after = load_bundle(place / "pretrained").state, load_bundle(model).state
    frozen = [name for name in after if name.startswith("bert.")]
    assert frozen
    assert all(torch.equal(after[name], before[name]) for name in frozen)
    found = evaluate(EvaluateConfig(str(model), str(place / "dev.txt")))
    assert found["metrics"] == pytest.approx(summary["dev"])
    counts = predict(PredictConfig(str(model), str(place / "dev.txt"), str(tmp_path / "out.conll")))
    assert counts["rows"] == 40
    assert predictor.load(model).tag(["worda good"])[0].tags == ["O", "B-SIGN"]
    with pytest.raises(InputError, match="needs a spans head, the model has feature-tagging"):
        evaluate(EvaluateConfig(str(model), str(place / "dev.txt"), task="squad1"))
    with pytest.raises(InputError, match="features is 'first'"):
        finetune(settings(place, "refused", features="first"))
    for change, message in (
        ({"random_weights": True}, "leave out --random-weights"),
        ({"reinit_layers": 1}, "--features trains no layer"),
        ({"bilstm": True}, "--features trains no layer"),
        ({"layer_rate_decay": 0.9}, "--features trains no layer"),
    ):
        with pytest.raises(InputError, match=message):
            finetune(settings(place, "refused", features="last", **change))
    assert not (place / "refused").exists()


def test_doctor_reads_words_too(place: Path) -> None:
    from bertsmith.recipes.config import DoctorConfig
    from bertsmith.recipes.doctor import doctor

    for name in ("train.txt", "dev.jsonl"):
        found = doctor(DoctorConfig(data=str(place / name), task="tag", dev=str(place / "dev.txt")))
        leaked = [finding["count"] for finding in found["findings"] if finding["name"] == "dev_in_train"]
        assert (leaked == [40]) == (name == "dev.jsonl")
