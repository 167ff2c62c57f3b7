"""The six experiments of the paper at the scale of two cores: what docs/experiments.md tells of.

    python benchmarks/study.py --data DATA --out study
    python benchmarks/study.py --data DATA --out study --experiments objective masking --seeds 1

From a part of the corpus in --data a vocabulary and pretraining data are made, and of the tasks a folder in
which SQuAD's dev file has fewer questions, drawn by a fixed seed. Then ``bertsmith ablate`` runs each
experiment; the same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from glue_files import text_of
from local_data import data_directory
from quality_runs import drawn

CORPUS = ("wiki-en/train-00.txt.gz", "wiki-en/train-01.txt.gz", "books-en/train-00.txt.gz")
TASKS_OF = {
    "objective": ("mrpc", "sst2", "squad1"),
    "masking": ("sst2", "conll", "conll-features"),
    "features": ("conll",),
    "steps": ("sst2",),
    "recipe": ("sst2",),
    "size": ("mrpc", "sst2"),
}
"""Of each experiment; tasks of the paper's tables whose data is small teach a model of this size nothing."""
ROWS_OF = {"mrpc": 2000, "sst2": 3000, "squad1": 1500, "conll": 1500}
NEEDS_CORPUS = ("objective", "recipe")
SQUAD_DEV_ROWS = 300


def main() -> None:
    arguments = parse()
    data, out = Path(arguments.data), Path(arguments.out)
    prepare(data, out, arguments.vocab_size)
    for experiment in arguments.experiments:
        tasks = TASKS_OF[experiment]
        flags = ["--corpus", out / "text"] if experiment in NEEDS_CORPUS else []
        judged_by = dict.fromkeys(task.partition("-")[0] for task in tasks)  # conll-features is conll
        bertsmith(
            *("ablate", experiment, "--data", out / "data", "--task-data", out / "tasks", "--tasks", *tasks),
            *("--out", arguments.runs or out / "runs", "--preset", arguments.preset),
            *("--steps", arguments.steps, "--seeds", arguments.seeds, *flags),
            *("--pretraining", f"batch-size={arguments.batch_size}", f"evaluate-steps={arguments.steps}"),
            *("--finetuning", "epochs=2", "batch-size=16", "seq-len=128"),
            *(f"optimizer.learning-rate={arguments.rate}",),
            *(f"{task}:limit-rows={ROWS_OF[task]}" for task in judged_by),
        )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--data", default=data_directory(), help="directory with corpus, glue, squad, conll2003"
    )
    parser.add_argument("--out", default="study")
    parser.add_argument("--runs", help="the --out of ablate; default: runs in --out")
    parser.add_argument("--experiments", nargs="+", choices=TASKS_OF, default=list(TASKS_OF))
    parser.add_argument("--preset", default="fast-tiny")
    parser.add_argument("--vocab-size", type=int, default=4000)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=16)
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
    link(data / "squad" / "train-v1.1.rebuilt.json.gz", tasks / "squad" / "train-v1.1.json.gz")
    write_fewer_questions(data / "squad" / "dev-v1.1.rebuilt.json.gz", tasks / "squad" / "dev-v1.1.json")


def link(source: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    if not place.exists():
        place.symlink_to(source.resolve())


def write_fewer_questions(source: Path, place: Path) -> None:
    if place.exists():
        return
    content = json.loads(text_of(source))
    paragraphs = [part for article in content["data"] for part in article["paragraphs"]]
    ids = [qa["id"] for part in paragraphs for qa in part["qas"]]
    kept = set(drawn(ids, SQUAD_DEV_ROWS, seed=0))
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
