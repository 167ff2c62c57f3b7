"""Experiments as a user runs them: rows trained once, killed and gone on with, judged, reported."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertsmith import cli
from bertsmith.bundle import load_bundle
from bertsmith.experiments.config import AblateConfig
from bertsmith.experiments.designs import COLUMNS, DESIGNS, Row, mixture_row
from bertsmith.experiments.results import Results, RowResult, Run
from bertsmith.experiments.study import Outcome, Study, can_judge, settings_in, words_for
from bertsmith.presets import PRESETS
from bertsmith.recipes.pretrain import pretrain
from tests.recipes import pretraining
from tests.recipes.pretraining import WORDS

SMALL = (
    *("batch-size=8", "evaluate-examples=16", "log-steps=1", "precision=float32"),
    *("architecture.hidden-size=32", "architecture.num-layers=2", "architecture.num-heads=2"),
    *("architecture.intermediate-size=64", "architecture.max-positions=64"),
)
FAST = ("epochs=1", "seq-len=48", "batch-size=16", "precision=float32", "optimizer.learning-rate=1e-3")


@pytest.fixture(scope="session")
def study_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pairs of a made-up language."""
    return pretraining.prepared(tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="session")
def task_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SST-2 and CoNLL-2003 in that language, in their published layouts."""
    root = tmp_path_factory.mktemp("tasks")
    draw = np.random.default_rng(1)
    (root / "glue" / "SST-2").mkdir(parents=True)
    (root / "conll2003").mkdir()
    for split, name in (("train", "eng.train"), ("dev", "eng.testa")):
        rows, sentences = ["sentence\tlabel"], ["-DOCSTART- -X- O O\n"]
        for _ in range(48):
            words = draw.choice(WORDS, size=5).tolist()
            rows.append(f"{' '.join(words)}\t{int(words[0] in WORDS[:30])}")
            tags = ["I-PER" if word in WORDS[:8] else "O" for word in words]
            sentences.append(
                "".join(f"{word} NN I-NP {tag}\n" for word, tag in zip(words, tags, strict=True))
            )
        (root / "glue" / "SST-2" / f"{split}.tsv").write_text("\n".join(rows) + "\n")
        (root / "conll2003" / name).write_text("\n".join(sentences))
    return root


def words_of(experiment: str, data: Path, tasks: Path, out: Path, *more: str) -> list[str]:
    return [
        *("ablate", experiment, "--data", str(data), "--task-data", str(tasks), "--out", str(out)),
        *("--steps", "6", "--seeds", "2", "--pretraining", *SMALL, "--finetuning", *FAST, *more),
    ]


def ablated(capsys: pytest.CaptureFixture[str], words: list[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the JSON of an ablation and what it said that it trained."""
    assert cli.run([*words, "--json"]) == 0
    printed = capsys.readouterr()
    trained = [line for line in printed.err.splitlines() if line.startswith(("pretraining ", "fine-tuning "))]
    return json.loads(printed.out), [line for line in trained if ", seed " in line]


def test_a_table_is_trained_once_and_only_what_changes_is_trained_again(
    study_data, task_data, tmp_path, capsys
):
    mixtures = ("--mixtures", "80/10/10", "0/0/100")
    words = words_of("masking", study_data, task_data, tmp_path / "study", *mixtures, "--tasks", "sst2")
    summary, trained = ablated(capsys, words)
    assert len(trained) == 8  # two rows, two seeds, pretraining and fine-tuning
    rows = {row["name"]: row for row in summary["rows"]}
    for name, shares in (("80/10/10", (0.8, 0.1, 0.1)), ("0/0/100", (0.0, 0.0, 1.0))):
        assert rows[name]["seeds"] == [0, 1]
        assert len(rows[name]["columns"]["SST-2"]["values"]) == 2
        for mixture in rows[name]["mixture"]:
            chance = 1 / len(WORDS) * shares[2]  # a random piece that is the right one counts as the same
            expected = (shares[0], shares[1] + chance, shares[2] - chance)
            for share, wanted in zip(("mask", "same", "random"), expected, strict=True):
                deviation = (max(wanted * (1 - wanted), 1e-4) / mixture["pieces"]) ** 0.5
                assert abs(mixture[share] - wanted) < 5 * deviation
    again, trained = ablated(capsys, words)
    assert trained == []
    assert again["rows"] == summary["rows"]
    stored = next((tmp_path / "study" / "fine-tuned").glob("*/result.json"))
    content = stored.read_text()
    for broken in ("", "[]", "{}", content.replace('"seconds": ', '"seconds": "a", "were": ')):
        stored.write_text(broken)
        assert cli.run(words) == 2
        assert f"{stored}: no result of a run" in capsys.readouterr().err.splitlines()[-1]
    stored.write_text(content)
    _, trained = ablated(capsys, [*words, "--finetuning", *FAST[:-1], "optimizer.learning-rate=2e-3"])
    assert [line.split(" ")[0] for line in trained] == ["fine-tuning"] * 4
    _, trained = ablated(capsys, [word if word != "2" else "3" for word in words])
    assert len(trained) == 4  # the third seed of both rows
    text = (tmp_path / "study" / "masking" / "table.md").read_text()
    assert "| 80/10/10 | 3 |" in text
    page = (tmp_path / "study" / "masking" / "report.html").read_text()
    assert "bertsmith ablate masking" in page
    assert (tmp_path / "study" / "masking" / "figure-sst-2.svg").read_text().startswith("<svg xmlns=")


def test_experiments_of_one_study_share_their_runs(study_data, task_data, tmp_path, capsys):
    """BERT of table 5 is 80/10/10 of table 8 and dynamic masks of the recipe."""
    out = tmp_path / "study"
    summary, trained = ablated(
        capsys, words_of("objective", study_data, task_data, out, "--tasks", "sst2", "--seeds", "1")
    )
    assert [row["name"] for row in summary["rows"]] == [
        *("BERT", "no NSP", "left-to-right, no NSP", "left-to-right + BiLSTM", "BiLSTM + ELMo + attention")
    ]
    assert set(summary["left_out"]) == {"SOP", "full sentences"}
    assert sum(line.startswith("pretraining") for line in trained) == 4  # with and without BiLSTM: the same
    assert sum(line.startswith("fine-tuning") for line in trained) == 5
    assert [row["predicts"] for row in summary["rows"]] == ["masked pieces"] * 2 + ["neighbouring pieces"] * 3
    words = words_of("masking", study_data, task_data, out, "--tasks", "sst2", "--seeds", "1")
    _, trained = ablated(capsys, [*words, "--mixtures", "80/10/10"])
    assert trained == []
    words = words_of("recipe", study_data, task_data, out, "--tasks", "sst2", "--seeds", "1")
    summary, trained = ablated(capsys, words)
    assert [line for line in trained if line.startswith("pretraining")] == [
        "pretraining BERT: static masks, seed 0"
    ]
    assert {row["name"] for row in summary["rows"]} == {"BERT: static masks", "+ dynamic masks", "+ no NSP"}


def test_other_pairs_are_prepared_from_the_text(study_data, task_data, tmp_path, capsys):
    words = [
        *("ablate", "objective", "--data", str(study_data), "--out", str(tmp_path / "study")),
        *("--tasks", "none", "--seeds", "1", "--steps", "6", "--pretraining", *SMALL),
    ]
    rows = ("--rows", "BERT", "SOP", "full sentences")
    summary, _ = ablated(capsys, [*words, "--corpus", str(study_data.parent / "corpus.txt"), *rows])
    assert [row["name"] for row in summary["rows"]] == list(rows[1:])
    assert summary["left_out"] == {}
    manifest = json.loads((tmp_path / "study" / "data" / "sop" / "manifest.json").read_text())
    assert manifest["settings"]["pairing"] == "sop"
    assert manifest["settings"]["seq_len"] == 32


def test_data_without_pairs_is_for_rows_that_predict_none(tmp_path, capsys):
    data = pretraining.prepared(tmp_path, "full-sentences")
    words = [
        *("ablate", "objective", "--data", str(data), "--out", str(tmp_path / "study")),
        *("--tasks", "none", "--seeds", "1", "--steps", "2", "--pretraining", *SMALL),
    ]
    assert cli.run(words) == 2
    assert "row BERT needs the original's pairs" in capsys.readouterr().err
    assert not (tmp_path / "study").exists()
    rows = ["no NSP", "left-to-right, no NSP"]
    summary, _ = ablated(capsys, [*words, "--rows", *rows])
    assert [row["name"] for row in summary["rows"]] == rows
    assert [len(row["heldout_loss"]) for row in summary["rows"]] == [1, 1]


@pytest.mark.parametrize(
    ("processes", "rows"),
    [
        (1, ("BERT", "no NSP")),
        pytest.param(2, ("BERT",), marks=pytest.mark.skipif(os.cpu_count() == 1, reason="one processor")),
    ],
)
def test_a_row_that_diverges_is_a_result_and_the_others_go_on(study_data, tmp_path, capfd, processes, rows):
    words = [
        *("ablate", "objective", "--data", str(study_data), "--out", str(tmp_path)),
        *("--tasks", "none", "--seeds", "1", "--steps", "6", "--processes", str(processes), "--json"),
        *("--pretraining", *SMALL, "optimizer.learning-rate=1e30", "optimizer.max-grad-norm=0"),
        *("optimizer.warmup-fraction=0", "--rows", *rows),
    ]
    assert cli.run(words) == 0
    summary = json.loads(capfd.readouterr().out)
    assert [(row["name"], row["heldout_loss"]) for row in summary["rows"]] == [(name, []) for name in rows]
    results = [json.loads(path.read_text()) for path in tmp_path.glob("pretrained/*/result.json")]
    assert len(results) == len(rows)
    assert all(result["status"].startswith("diverged: ") for result in results)


def test_steps_judges_the_checkpoints_of_one_run(study_data, task_data, tmp_path, capsys):
    words = words_of("steps", study_data, task_data, tmp_path / "study", "--tasks", "sst2", "--seeds", "1")
    summary, trained = ablated(capsys, [*words, "--steps", "10"])
    assert sum(line.startswith("pretraining") for line in trained) == 2
    assert sum(line.startswith("fine-tuning") for line in trained) == 10
    masked = summary["rows"][0]
    assert masked["name"] == "masked, 10 steps"
    run = Path(masked["runs"][0])
    last, early = (load_bundle(run / f"model-step-{step}").state for step in (10, 2))
    final = load_bundle(run / "model").state
    assert all((last[name] == final[name]).all() for name in final)
    assert any((early[name] != final[name]).any() for name in final)


def test_features_judges_layers_of_a_model_that_is_there(study_data, task_data, tmp_path, capsys):
    pretrain(pretraining.settings(study_data, tmp_path / "run", steps=3))
    words = [
        *("ablate", "features", "--model", str(tmp_path / "run" / "model"), "--task-data", str(task_data)),
        *("--out", str(tmp_path / "study"), "--seeds", "1"),
        *("--finetuning", "epochs=1", "seq-len=48", "precision=float32"),
    ]
    summary, trained = ablated(capsys, words)
    names = [row["name"] for row in summary["rows"]]
    assert names == [
        "fine-tuned",
        "embeddings",
        "second-to-last",
        "last",
        "weighted-all",
    ]  # it has two layers
    assert len(trained) == 5


def test_a_killed_study_goes_on_where_it_was(study_data, task_data, tmp_path, capsys):
    out = tmp_path / "study"
    words = words_of(
        "masking", study_data, task_data, out, "--tasks", "sst2", "--mixtures", "80/10/10", "50/50/0"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "bertsmith", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())},  # the last bits depend on them
    )
    deadline = time.monotonic() + 120
    while not list(out.glob("pretrained/*/result.json")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = len(list(out.glob("*/*/result.json")))
    assert 1 <= done < 8
    summary, trained = ablated(capsys, words)
    assert len(trained) == 8 - done
    undisturbed, _ = ablated(capsys, [word.replace(str(out), str(tmp_path / "other")) for word in words])
    for row, other in zip(summary["rows"], undisturbed["rows"], strict=True):
        assert row["heldout_loss"] == other["heldout_loss"]
        assert row["columns"] == other["columns"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--rows", "80/10/1"), "did you mean '80/10/10'"),
        (("--mixtures", "80/10"), "no mixture; write percent"),
        (("--mixtures", "80/10/20"), "no mixture; write percent"),
        (("--tasks", "sst"), "did you mean 'sst2'"),
        (("--tasks", "mrpc"), "holds no MRPC"),
        (("--pretraining", "batchsize=8"), "unknown setting 'batchsize'; did you mean 'batch_size'"),
        (("--pretraining", "batch-size"), "expected NAME=VALUE"),
        (("--finetuning", "epochs=many"), "epochs is 'many'; expected int"),
        (("--finetuning", "epochs=0"), "epochs is 0; it has to be at least 1"),
        (("--finetuning", "seq-len=128"), "at most the model's 64 positions"),
        (("--budget", "1m"), "give either --steps or --budget, not both"),
        (("--seeds", "0"), "--seeds is 0"),
        (("--processes", "99999"), "--processes is 99999; this machine has"),
        (("--pretraining", "seed=7"), "'seed=7' would be ignored: ablate says seed itself"),
        (
            ("--finetuning", "sst:epochs=2"),
            "'sst:epochs=2' would be ignored: it is for a task that is not judged",
        ),
        (("--finetuning", "sst2:task=cola"), "'task=cola' would be ignored: ablate says task itself"),
        (("--finetuning", "task=cola"), "'task=cola' would be ignored: ablate says task itself"),
        (("--corpus", "a.txt"), "--corpus would be ignored"),
        (("--model", "m"), "only ablate features"),
    ],
    ids=str,
)
def test_wrong_settings_are_refused_before_anything_is_trained(
    study_data, task_data, tmp_path, capsys, more, message
):
    words = words_of("masking", study_data, task_data, tmp_path / "study", "--tasks", "sst2", *more)
    assert cli.run(words) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert len(printed.err.strip().splitlines()) == 1
    assert not (tmp_path / "study").exists()


def test_the_papers_numbers_stand_beside_the_rows_of_its_tables():
    base = PRESETS["bert-base"]("DATA", "RUN")
    size = DESIGNS["size"].rows(base)
    assert [row.name for row in size] == [row.paper_name for row in size]  # at BERT-base's size: the paper's
    assert {row.name: row.published["mnli"] for row in size} == {
        **{"3/768/12": 77.9, "6/768/3": 80.6, "6/768/12": 81.9},
        **{"12/768/12": 84.4, "12/1024/16": 85.7, "24/1024/16": 86.6},
    }
    assert mixture_row("80/10/10").published == {"mnli": 84.2, "conll": 95.4, "conll-features": 94.9}
    assert mixture_row("90/5/5").published == {}


def test_a_row_on_a_frozen_encoder_is_judged_where_there_is_a_head_for_it():
    base = PRESETS["bert-base"]("DATA", "RUN")
    *others, elmo = DESIGNS["objective"].rows(base)
    assert (elmo.paper_name, elmo.published) == ("BiLSTM+ELMo+Attn", {})  # its figures are of test sets
    assert elmo.finetuning == {"features": "weighted-all", "lstm_size": 768}
    judged = {name: can_judge(COLUMNS[name], elmo) for name in COLUMNS}
    assert [name for name, is_judged in judged.items() if not is_judged] == [
        "squad1",
        "conll",
        "conll-features",
    ]
    not_judged = [(row.name, name) for row in others for name in COLUMNS if not can_judge(COLUMNS[name], row)]
    assert not_judged == [("left-to-right + BiLSTM", "conll-features")]  # frozen, with its own BiLSTM on it


@pytest.mark.slow
def test_sentence_pairs_on_frozen_lstms_stand_in_the_table(
    study_data, task_data, shared_data, tmp_path, capsys
):
    """Real pairs; the pieces are of the made-up language, mostly [UNK]."""
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    (tasks / "MRPC").symlink_to(shared_data / "glue" / "MRPC")
    (tasks / "conll2003").symlink_to(task_data / "conll2003")
    rows = ("--rows", "BERT", "BiLSTM + ELMo + attention")
    words = words_of("objective", study_data, tasks, tmp_path / "study", "--tasks", "mrpc", "conll", *rows)
    small = ("--finetuning", *FAST, "limit-rows=64")
    summary, trained = ablated(capsys, [*words, "--seeds", "1", *small])
    assert len(trained) == 5  # two pretrainings, MRPC twice, tags once
    bert, elmo = (row["columns"] for row in summary["rows"])
    assert len(bert["NER"]["values"]) == len(elmo["MRPC"]["values"]) == 1
    assert elmo["NER"]["values"] == []
    assert elmo["MRPC"]["paper"] is None
    name = "BiLSTM + ELMo + attention on NER"
    assert summary["left_out"][name] == "has no head for such a task on a frozen encoder"
    text = (tmp_path / "study" / "objective" / "table.md").read_text()
    assert "| BiLSTM + ELMo + attention (paper: BiLSTM+ELMo+Attn) | 1 |" in text
    assert f"{name} was left out" in text


def outcome(value: float | None, status: str = "finished") -> Outcome:
    return Outcome({} if value is None else {"accuracy": value}, status, Path("run"), 1.0)


def test_findings_are_computed_from_the_numbers():
    """Clear differences, differences that chance explains, and the paper's direction."""
    column = COLUMNS["mnli"]
    values = {"BERT": (0.60, 0.61, 0.602), "no NSP": (0.70, 0.705, 0.71), "other": (0.59, 0.62, 0.60)}
    published = {"BERT": 84.4, "no NSP": 83.9}
    rows = [
        RowResult(
            Row(name, published={"mnli": published[name]} if name in published else {}),
            [Run(seed, outcome(None), {"MNLI-m": outcome(value)}) for seed, value in enumerate(found)],
        )
        for name, found in values.items()
    ]
    results = Results(DESIGNS["objective"], [column], rows, {}, PRESETS["bert-tiny"]("D", "R"))
    clear, unclear = results.comparisons()
    assert clear.is_clear
    assert clear.difference == pytest.approx(10.1)
    assert clear.published == pytest.approx(-0.5)
    assert not unclear.is_clear
    # Holm: the smaller of two p values counts twice.
    from scipy.stats import ttest_ind

    smaller = ttest_ind(values["no NSP"], values["BERT"], equal_var=False).pvalue
    larger = ttest_ind(values["other"], values["BERT"], equal_var=False).pvalue
    assert clear.p == pytest.approx(2 * smaller)
    assert unclear.p == pytest.approx(max(larger, 2 * smaller))
    first, second = results.findings()
    assert "10.10 above BERT" in first
    assert "unlike in the paper" in first
    assert "no difference can be claimed" in second
    (blind,) = results.doubts()
    least = float(
        re.search(r"less than (\S+) cannot be told from chance \(2 are tested together\)", blind)[1]
    )
    assert abs(unclear.difference) < least < clear.difference


def test_losses_of_different_mixtures_are_not_compared():
    """80/20/0 shows a fifth of the pieces that it asks for: its loss is lower whatever the model knows."""
    rows = [Row("BERT"), Row("static", {"masking": {"dynamic": False}}), mixture_row("80/20/0")]

    def trained(directory: str) -> list[Run]:
        return [Run(0, Outcome({"heldout_mlm_loss": 6.0}, "finished", Path(directory), 1.0), {})]

    found = [RowResult(row, trained(row.name)) for row in rows]
    results = Results(DESIGNS["masking"], [], found, {}, PRESETS["bert-tiny"]("D", "R"))
    assert [one.row for one in results.comparisons()] == ["static"]
    assert any("are not compared" in line for line in results.doubts())
    alike = Results(DESIGNS["masking"], [], found[:2], {}, PRESETS["bert-tiny"]("D", "R"))
    assert alike.doubts() == []
    same = RowResult(Row("other layers"), trained("BERT"))
    assert Results(DESIGNS["masking"], [], [found[0], same], {}, alike.base).comparisons() == []
    left = RowResult(Row("left-to-right", reads_left=True), trained("left"))
    assert (
        Results(DESIGNS["objective"], [], [left, *found[:2]], {}, PRESETS["bert-tiny"]("D", "R")).doubts()
        == []
    )


def test_settings_of_one_task_win_over_those_of_all():
    words = ["sst2:epochs=1", "epochs=2", "seq-len=64", "conll:seq-len=128"]
    found = {task: settings_in(words_for(task, words), "--finetuning") for task in ("sst2", "conll", "mrpc")}
    assert found == {
        "sst2": {"epochs": 1, "seq_len": 64},
        "conll": {"epochs": 2, "seq_len": 128},
        "mrpc": {"epochs": 2, "seq_len": 64},
    }


def test_settings_as_name_and_value():
    assert settings_in(["batch-size=64", "optimizer.learning-rate=1e-3"], "--pretraining") == {
        "batch_size": 64,
        "optimizer": {"learning_rate": "1e-3"},  # YAML's text; overlay makes a number of it
    }


def test_a_moved_study_is_not_trained_again(study_data, task_data, tmp_path, capsys):
    words = words_of("masking", study_data, task_data, tmp_path / "here", "--tasks", "sst2", "--seeds", "1")
    ablated(capsys, [*words, "--mixtures", "80/10/10"])
    (tmp_path / "here").rename(tmp_path / "there")
    moved = [word.replace(str(tmp_path / "here"), str(tmp_path / "there")) for word in words]
    _, trained = ablated(capsys, [*moved, "--mixtures", "80/10/10"])
    assert trained == []


def test_the_settings_of_a_row_are_those_of_the_preset_with_its_changes(study_data, tmp_path):
    study = Study(AblateConfig("objective", str(tmp_path), str(study_data), steps=10), print)
    rows = {row.name: row for row in DESIGNS["objective"].rows(study.base)}
    assert study.pretraining(rows["BERT"], 3).seed == 3
    left = study.pretraining(rows["left-to-right, no NSP"], 3)
    assert (left.architecture.context, left.next_sentence) == ("left", False)
    assert left.architecture.hidden_size == 128
