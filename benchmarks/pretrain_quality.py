"""Equal-time quality of pretraining: our recipes beside transformers' Trainer, on the same text and masks.

    python benchmarks/pretrain_quality.py --corpus TEXT... --vocab vocab.txt --out RESULTS --budget 10m
    python benchmarks/pretrain_quality.py --out RESULTS --print

Every contender trains for the same wall-clock time on the same training documents with the same vocabulary;
then its model directory is scored in float32 on the same held-out instances (running text of 128 pieces) with
the same masks, and fine-tuned by ``bertsmith finetune`` on rows of GLUE with the same settings. The Trainer
gets its instances tokenized and cut beforehand, and its number of steps measured beforehand, for nothing; it
trains masked words only, with the collator and the loop that ``run_mlm.py`` uses. Each run leaves one JSON
file in --out and is not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from local_data import glue_directory
from quality_runs import add_run_arguments, seeds_of, spread, versions, write

SEQ_LEN = 128
SHORT_LEN = 64
GLUE = {"sst2": "SST-2", "mrpc": "MRPC", "stsb": "STS-B", "cola": "CoLA"}
MAIN_METRIC = {"sst2": "accuracy", "mrpc": "f1", "stsb": "spearman", "cola": "matthews"}
FINETUNE_ROWS = 5000
FINETUNE_RATE = "2e-4"
HELDOUT_INSTANCES = 2000
MEASURED_STEPS = 40


@dataclass(frozen=True)
class Contender:
    """One way to pretrain.

    Attributes:
        flags: of ``bertsmith pretrain``; empty for the Trainer.
        data: the prepared data it reads, by name.
        long_data: data of the second phase, by name.
        trainer: settings of ``TrainingArguments``.
        shape: layers and width of the Trainer's model.
    """

    flags: tuple[str, ...] = ()
    data: str = "pairs-128"
    long_data: str = ""
    trainer: dict[str, Any] = field(default_factory=dict)
    shape: tuple[int, int] = (0, 0)


TUNED = {"learning_rate": 2e-3, "per_device_train_batch_size": 16, "warmup_steps": 0.1, "bf16": True}
CONTENDERS = {
    "fast": Contender(("--preset", "fast-tiny"), data="text-64", long_data="text-128"),
    "bert": Contender(("--preset", "bert-tiny"), data="pairs-128"),
    "trainer-default": Contender(shape=(2, 128), data="text-128"),
    "trainer-tuned": Contender(shape=(2, 128), data="text-128", trainer=TUNED),
}


def main() -> None:
    arguments = parse()
    out = Path(arguments.out)
    if not arguments.print:
        out.mkdir(parents=True, exist_ok=True)
        prepare_all(arguments, out)
        for seed in seeds_of(arguments):
            for name in arguments.contenders:
                run_once(name, seed, arguments, out)
    result = collect(out)
    print(json.dumps(result) if arguments.json else table(result))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--corpus", nargs="+", default=[], help="text for bertsmith prepare")
    parser.add_argument("--vocab", help="a vocab.txt")
    parser.add_argument("--glue", default=glue_directory(), help="directory that holds SST-2, MRPC, ...")
    parser.add_argument("--budget", default="10m")
    parser.add_argument("--contenders", nargs="+", choices=list(CONTENDERS), default=list(CONTENDERS))
    add_run_arguments(parser, "results/pretrain_quality", seeds=3)
    arguments = parser.parse_args()
    if not arguments.print and (not arguments.corpus or not arguments.vocab or not arguments.glue):
        parser.error("give --corpus, --vocab and --glue")
    return arguments


def bertsmith(*words: str) -> dict[str, Any]:
    """Run a verb in a process of its own; return its JSON."""
    command = [sys.executable, "-m", "bertsmith", *words, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


def prepare_all(arguments: argparse.Namespace, out: Path) -> None:
    """Prepare the corpus three ways; the held-out documents are the same ones."""
    for name, pairing, seq_len in (
        ("pairs-128", "nsp", SEQ_LEN),
        ("text-128", "full-sentences", SEQ_LEN),
        ("text-64", "full-sentences", SHORT_LEN),
    ):
        if not (out / name).exists():
            bertsmith(
                *("prepare", "--corpus", *arguments.corpus, "--vocab", arguments.vocab),
                *("--out", str(out / name), "--pairing", pairing, "--seq-len", str(seq_len)),
            )


def run_once(name: str, seed: int, arguments: argparse.Namespace, out: Path) -> None:
    """Pretrain, score and fine-tune one contender, unless its file is there."""
    path = out / f"{name}-seed{seed}.json"
    if path.exists():
        return
    contender = CONTENDERS[name]
    print(f"{name}, seed {seed}", file=sys.stderr)
    run = out / "runs" / f"{name}-seed{seed}"
    if not (run / "model").exists():
        (train_trainer if contender.shape[0] else train_ours)(contender, seed, arguments, out, run)
    result = {
        "contender": name,
        "seed": seed,
        "budget": arguments.budget,
        "threads": int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1)),
        **json.loads((run / "speed.json").read_text()),
        **heldout(run / "model", out / "text-128"),
        "dev": {task: finetune(task, seed, arguments, run) for task in GLUE},
    }
    write(path, result)


def train_ours(contender: Contender, seed: int, arguments: argparse.Namespace, out: Path, run: Path) -> None:
    long = ("--long-data", str(out / contender.long_data)) if contender.long_data else ()
    summary = bertsmith(
        *("pretrain", *contender.flags, "--data", str(out / contender.data), *long),
        *("--out", str(run), "--budget", arguments.budget, "--seed", str(seed), "--evaluate-examples", "200"),
        "--resume",
    )
    names = ("parameters", "tokens_per_second", "tokens", "seconds")
    (run / "speed.json").write_text(json.dumps({key: summary[key] for key in names}))


def train_trainer(
    contender: Contender, seed: int, arguments: argparse.Namespace, out: Path, run: Path
) -> None:
    """Train transformers' BertForMaskedLM by its Trainer for the budget; write a model directory."""
    import torch
    import transformers

    from bertsmith.config import duration_seconds
    from bertsmith.data.shards import Instances

    instances = Instances.open(out / contender.data, "train")

    class Rows(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return len(instances)

        def __getitem__(self, index: int) -> dict[str, list[int]]:
            return {"input_ids": instances.example(index).ids.tolist()}

    layers, width = contender.shape
    tokenizer = transformers.BertTokenizer(str(out / contender.data / "vocab.txt"))
    config = transformers.BertConfig(
        vocab_size=len(tokenizer),
        num_hidden_layers=layers,
        hidden_size=width,
        num_attention_heads=width // 64,
        intermediate_size=4 * width,
    )
    seconds = duration_seconds(arguments.budget)

    def trained(steps: int) -> tuple[Any, float]:
        """Return the trainer after so many steps, and the seconds they took."""
        transformers.set_seed(seed)
        trainer = transformers.Trainer(
            model=transformers.BertForMaskedLM(config),
            args=transformers.TrainingArguments(
                output_dir=str(run / "trainer"),
                max_steps=steps,
                seed=seed,
                use_cpu=True,
                save_strategy="no",
                report_to=[],
                disable_tqdm=True,
                **contender.trainer,
            ),
            train_dataset=Rows(),
            data_collator=transformers.DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15),
        )
        begun = time.perf_counter()
        trainer.train()
        return trainer, time.perf_counter() - begun

    trained(5)
    _, measured = trained(MEASURED_STEPS)
    steps = max(1, round(seconds * MEASURED_STEPS / measured))
    trainer, taken = trained(steps)
    trainer.model.save_pretrained(run / "model")
    tokenizer.save_pretrained(run / "model")
    (run / "model" / "vocab.txt").write_bytes((out / contender.data / "vocab.txt").read_bytes())
    rows = steps * trainer.args.train_batch_size
    tokens = round(rows * instances.manifest["splits"]["train"]["mean_length"])
    speed = {
        "parameters": trainer.model.num_parameters(),
        "tokens": tokens,
        "tokens_per_second": round(tokens / taken, 1),
        "seconds": round(taken, 1),
    }
    (run / "speed.json").write_text(json.dumps(speed))


def heldout(model: Path, data: Path) -> dict[str, Any]:
    """Return the held-out loss and accuracy of masked words, in float32."""
    import torch

    from bertsmith.bundle import load_bundle, load_pretraining_model
    from bertsmith.data.config import MaskingConfig
    from bertsmith.data.loader import fixed_batches
    from bertsmith.data.shards import Instances
    from bertsmith.objectives import PretrainingObjective
    from bertsmith.text.tokenizer import Tokenizer
    from bertsmith.training.loop import LoopSettings, evaluate

    instances = Instances.open(data, "heldout")
    batches = fixed_batches(instances, Tokenizer.load(data), MaskingConfig(), HELDOUT_INSTANCES, 32)
    loaded = load_pretraining_model(load_bundle(str(model)))
    values = evaluate(loaded, PretrainingObjective(), batches, LoopSettings(0, torch.device("cpu")))
    return {f"heldout_{name}": values[name] for name in ("mlm_loss", "mlm_accuracy")}


def finetune(task: str, seed: int, arguments: argparse.Namespace, run: Path) -> float:
    """Return the main metric on dev after fine-tuning."""
    directory = run / "finetuned" / task
    if not (directory / "metrics.json").exists():
        bertsmith(
            *("finetune", "--task", task, "--model", str(run / "model")),
            *("--data", str(Path(arguments.glue) / GLUE[task]), "--out", str(directory), "--seed", str(seed)),
            *("--limit-rows", str(FINETUNE_ROWS), "--optimizer.learning-rate", FINETUNE_RATE),
        )
    metrics = json.loads((directory / "metrics.json").read_text())
    return float(metrics["dev"][MAIN_METRIC[task]])


def collect(out: Path) -> dict[str, Any]:
    """Return means and deviations of every contender."""
    runs = [json.loads(path.read_text()) for path in sorted(out.glob("*-seed*.json"))]
    result: dict[str, Any] = {}
    for name in dict.fromkeys(run["contender"] for run in runs):
        mine = [run for run in runs if run["contender"] == name]
        keys = ("heldout_mlm_loss", "heldout_mlm_accuracy", "tokens_per_second", "parameters")
        entry = {key: spread([run[key] for run in mine]) for key in keys}
        entry |= {task: spread([run["dev"][task] for run in mine]) for task in GLUE}
        result[name] = entry | {"seeds": [run["seed"] for run in mine]}
    return {
        "ours": {name: entry for name, entry in result.items() if not name.startswith("trainer")},
        "peers": {name: entry for name, entry in result.items() if name.startswith("trainer")},
        "unit": "held-out MLM loss in nats; dev metric",
        "budgets": sorted({run["budget"] for run in runs}),
        "threads": sorted({run["threads"] for run in runs}),
        "versions": versions(),
    }


def table(result: dict[str, Any]) -> str:
    names = ("heldout_mlm_loss", "heldout_mlm_accuracy", *GLUE, "tokens_per_second")
    lines = [f"{'contender':<18}" + "".join(f"{name.removeprefix('heldout_'):>19}" for name in names)]
    for name, entry in (result["ours"] | result["peers"]).items():
        cells = [f"{entry[key]['mean']:.4g} ± {entry[key]['std']:.2g}" for key in names]
        lines.append(
            f"{name:<18}" + "".join(f"{cell:>19}" for cell in cells) + f"  {len(entry['seeds'])} seeds"
        )
    lines.append(f"budget {result['budgets']}, threads {result['threads']}, {result['versions']}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
