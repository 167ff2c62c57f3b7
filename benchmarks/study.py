"""The six experiments of the paper at the scale of two cores: what docs/experiments.md tells of.

    python benchmarks/study.py --data DATA --out study
    python benchmarks/study.py --data DATA --out study --experiments objective masking --seeds 1

From a part of the corpus in --data a vocabulary and pretraining data are made, and of the tasks a folder with
smaller dev files, drawn by a fixed seed, and QNLI's training rows made from SQuAD's (``qnli_from_squad.py``).
Then ``bertsmith ablate`` runs each experiment; the same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import qnli_from_squad
from glue_files import TASKS, path_of, text_of
from local_data import data_directory
from quality_runs import drawn

CORPUS = ("wiki-en/train-00.txt.gz", "wiki-en/train-01.txt.gz", "books-en/train-00.txt.gz")
EXPERIMENTS = ("objective", "masking", "features", "steps", "size", "recipe")
NEEDS_CORPUS = ("objective", "recipe")
DEV_ROWS = {"mnli": 1000, "qnli": 1000, "squad1": 400}


def main() -> None:
    arguments = parse()
    data, out = Path(arguments.data), Path(arguments.out)
    prepare(data, out, arguments.vocab_size)
    for experiment in arguments.experiments:
        flags = ["--corpus", out / "text"] if experiment in NEEDS_CORPUS else []
        settings = [f"batch-size={arguments.batch_size}", f"evaluate-steps={arguments.steps}"]
        bertsmith(
            *("ablate", experiment, "--data", out / "data", "--task-data", out / "tasks"),
            *("--out", arguments.runs or out / "runs", "--preset", arguments.preset),
            *("--steps", arguments.steps, "--seeds", arguments.seeds, *flags),
            *("--pretraining", *settings),
            *("--finetuning", f"limit-rows={arguments.limit_rows}", "epochs=2", "batch-size=16"),
            *("seq-len=128", f"optimizer.learning-rate={arguments.rate}"),
        )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--data", default=data_directory(), help="directory with corpus, glue, squad, conll2003"
    )
    parser.add_argument("--out", default="study")
    parser.add_argument("--runs", help="the --out of ablate; default: runs in --out")
    parser.add_argument("--experiments", nargs="+", choices=EXPERIMENTS, default=EXPERIMENTS)
    parser.add_argument("--preset", default="fast-tiny")
    parser.add_argument("--vocab-size", type=int, default=4000)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--limit-rows", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=1e-3, help="of fine-tuning")
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.data is None:
        parser.error("name the directory of the data with --data")
    return arguments


def prepare(data: Path, out: Path, vocab_size: int) -> None:
    """Write text, vocabulary, pretraining data and tasks, whatever of them is not there."""
    text, vocab, tasks = out / "text", out / "vocab.txt", out / "tasks"
    text.mkdir(parents=True, exist_ok=True)
    for name in CORPUS:
        link(data / "corpus" / name, text / name.replace("/", "-"))
    if not vocab.exists():
        bertsmith("vocab", "--corpus", text, "--out", vocab, "--size", vocab_size)
    if not (out / "data" / "manifest.json").exists():
        bertsmith("prepare", "--corpus", text, "--vocab", vocab, "--out", out / "data", "--pairing", "nsp")
    for folder in ("glue/MRPC", "glue/SST-2", "conll2003"):
        link(data / folder, tasks / Path(folder).name)
    for task in ("mnli", "qnli"):
        folder = tasks / TASKS[task].directory
        folder.mkdir(exist_ok=True)
        for split in TASKS[task].dev:
            write_fewer_lines(path_of(data / "glue", task, split), folder / f"{split}.tsv", DEV_ROWS[task])
    link(path_of(data / "glue", "mnli", "train"), tasks / "MNLI" / "train.tsv.gz")
    squad = data / "squad"
    train = squad / "train-v1.1.rebuilt.json.gz"
    if not (tasks / "QNLI" / "train.tsv").exists():
        qnli_from_squad.write(qnli_from_squad.read(train), tasks / "QNLI" / "train.tsv", seed=0)
    (tasks / "squad").mkdir(exist_ok=True)
    link(train, tasks / "squad" / "train-v1.1.json.gz")
    write_fewer_questions(squad / "dev-v1.1.rebuilt.json.gz", tasks / "squad" / "dev-v1.1.json")


def link(source: Path | None, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    if source is not None and not place.exists():
        place.symlink_to(source.resolve())


def write_fewer_lines(source: Path | None, place: Path, number: int) -> None:
    if source is not None and not place.exists():
        header, *rows = text_of(source).splitlines()
        place.write_text("\n".join([header, *drawn(rows, number, seed=0)]) + "\n", encoding="utf-8")


def write_fewer_questions(source: Path, place: Path) -> None:
    if place.exists():
        return
    content = json.loads(text_of(source))
    paragraphs = [part for article in content["data"] for part in article["paragraphs"]]
    ids = [qa["id"] for part in paragraphs for qa in part["qas"]]
    kept = set(drawn(ids, DEV_ROWS["squad1"], seed=0))
    for part in paragraphs:
        part["qas"] = [qa for qa in part["qas"] if qa["id"] in kept]
    content["data"] = [{"title": "", "paragraphs": [part for part in paragraphs if part["qas"]]}]
    place.write_text(json.dumps(content), encoding="utf-8")


def bertsmith(*words: object) -> None:
    done = subprocess.run([sys.executable, "-m", "bertsmith", *map(str, words)], check=False)
    if done.returncode != 0:
        sys.exit(done.returncode)


if __name__ == "__main__":
    main()
