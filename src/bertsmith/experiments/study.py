"""The runs of a study: each named by what makes it, trained if not there, shared between experiments."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from safetensors.torch import load_file

from bertsmith import presets
from bertsmith.bundle import load_bundle, load_shape, save_bundle
from bertsmith.config import nearest, nested, overlay, to_dict
from bertsmith.data.shards import Instances
from bertsmith.errors import InputError, RunDivergedError, RunError
from bertsmith.experiments.config import AblateConfig
from bertsmith.experiments.designs import Changes, Column, Row
from bertsmith.experiments.mixture import measured_mixture
from bertsmith.experiments.runs import read_run
from bertsmith.experiments.task_data import task_directory
from bertsmith.files import atomic_file, write_json
from bertsmith.model.bert import BertForPreTraining
from bertsmith.recipes.config import FinetuneConfig, PrepareConfig
from bertsmith.recipes.finetune import EveryRunDiverged, finetune
from bertsmith.recipes.finetune_recipes import RECIPES
from bertsmith.recipes.finetune_run import LEARNED
from bertsmith.recipes.prepare import prepare
from bertsmith.recipes.pretrain import pretrain
from bertsmith.recipes.pretrain_config import PretrainConfig
from bertsmith.tasks.task import all_settings, find_task
from bertsmith.training import checkpoint

_RESULT = "result.json"
# What ablate says itself, of a pretraining and of a fine-tuning.
_OWN_PRETRAINING = ("data", "out", "seed", "resume", "preset", "steps", "budget")
_OWN_FINETUNING = ("task", "model", "data", "out", "features", "seed", "seeds", "resume")
# What neither changes a model nor what is measured of it.
_WITHOUT_EFFECT = ("out", "resume", "data", "checkpoint_seconds", "log_steps", "micro_batch_size")


class Stopped(RunError):
    """A run was asked to stop; what it has is saved."""


@dataclass(frozen=True)
class Outcome:
    """What one run came to.

    Attributes:
        metrics: by name; empty if it diverged.
        status: "finished", or what went wrong.
        directory: of the run.
        seconds: of training.
    """

    metrics: Mapping[str, float]
    status: str
    directory: Path
    seconds: float
    mixture: Mapping[str, float] = field(default_factory=dict)


@dataclass
class Study:
    """The directory of a study and the settings that its runs share.

    Attributes:
        config: the settings of ablate.
        say: shows a line.
    """

    config: AblateConfig
    say: Callable[[str], None]

    @property
    def out(self) -> Path:
        """The study's directory."""
        return Path(self.config.out)

    @cached_property
    def base(self) -> PretrainConfig:
        """The settings of a pretraining before a row changes them, in the shape of --model if given.

        Raises:
            InputError: a setting is unknown or of the wrong type.
        """
        config = self.config
        if config.preset not in presets.PRESETS:
            hint = nearest(config.preset, list(presets.PRESETS))
            raise InputError(f"unknown preset {config.preset!r}; {hint}")
        base = presets.PRESETS[config.preset](config.data, "")
        base = dataclasses.replace(base, steps=config.steps, budget=config.budget)
        base = overlay(
            base, settings_in(config.pretraining, "--pretraining", _OWN_PRETRAINING), "--pretraining"
        )
        if config.model is None:
            return base
        return dataclasses.replace(base, architecture=load_shape(config.model).config)

    @cached_property
    def pairing(self) -> str:
        """How --data was paired, as ``prepare --pairing`` names it."""
        return str(Instances.open(self.config.data, "train").manifest["settings"].get("pairing"))

    def pretraining(self, row: Row, seed: int) -> PretrainConfig:
        """Return the settings of a row's pretraining; its directory follows from them."""
        data = self.config.data if row.pairing is None else str(self.out / "data" / row.pairing)
        changes = dict(row.pretraining)
        if row.pairing is None and self.pairing != "nsp":
            changes.pop("next_sentence", None)  # there is none to leave out
        config = overlay(self.base, changes, f"row {row.name}")
        config = dataclasses.replace(config, data=data, seed=seed, resume=True)
        name = f"{config.preset}-{self._pretraining_key(config)}-seed{seed}"
        return dataclasses.replace(config, out=str(self.out / "pretrained" / name))

    def _pretraining_key(self, config: PretrainConfig) -> str:
        identity = {name: value for name, value in to_dict(config).items() if name not in _WITHOUT_EFFECT}
        identity["data"] = self._data_identity(config.data)
        return _digest(identity)

    def _data_identity(self, data: str) -> str:
        if data not in self._identities:
            self._identities[data] = Instances.open(data, "train").identity()
        return self._identities[data]

    @cached_property
    def _identities(self) -> dict[str, str]:
        return {}

    def prepare_pairings(self, rows: Sequence[Row]) -> None:
        """Prepare the data of rows with other pairs, in the vocabulary and length of the study's."""
        for pairing in dict.fromkeys(row.pairing for row in rows if row.pairing is not None):
            settings = Instances.open(self.config.data, "train").manifest["settings"]
            out = self.out / "data" / pairing
            if not (out / "manifest.json").exists():
                self.say(f"preparing pairs of kind {pairing}")
                lengths = {"seq_len": settings["seq_len"], "seed": settings.get("seed", 0)}
                prepare(
                    PrepareConfig(
                        list(self.config.corpus), self.config.data, str(out), pairing, resume=True, **lengths
                    )
                )

    def pretrained(self, row: Row, seed: int) -> Outcome:
        """Return a row's pretraining, trained if it is not there.

        Raises:
            Stopped: it was asked to stop.
        """
        if self.config.model is not None:
            return Outcome({}, "finished", Path(self.config.model).parent, 0.0)
        config = self.pretraining(row, seed)
        out = Path(config.out)
        if not (out / _RESULT).exists():
            self.say(f"pretraining {row.name}, seed {seed}")
            result = self._pretrain(config) | {"mixture": measured_mixture(config)}
            if config.keep_checkpoints == PretrainConfig.keep_checkpoints:
                shutil.rmtree(out / "checkpoints", ignore_errors=True)  # of no more use: the run is over
            write_json(out / _RESULT, result)
        return _outcome(out)

    def _pretrain(self, config: PretrainConfig) -> dict[str, Any]:
        try:
            summary = pretrain(config) if self.config.processes == 1 else self._pretrain_by_ranks(config)
        except RunDivergedError as error:
            return {"status": f"diverged: {error}", "metrics": {}, "seconds": 0.0}
        if summary.get("interrupted"):
            raise Stopped(f"stopped in {config.out}; the same command goes on")
        metrics = {name: value for name, value in summary.items() if _is_number(value)}
        return {"status": "finished", "metrics": metrics, "seconds": summary["seconds"]}

    def _pretrain_by_ranks(self, config: PretrainConfig) -> dict[str, Any]:
        """Pretrain in several processes, which torchrun starts."""
        settings = Path(f"{config.out}.yaml")
        settings.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(settings) as temporary:
            temporary.write_text(yaml.safe_dump(to_dict(config)), encoding="utf-8")
        launcher = ("torch.distributed.run", "--standalone", "--nproc-per-node", str(self.config.processes))
        words = ("-m", "bertsmith", "pretrain", "--config", str(settings), "--json")
        done = subprocess.run(
            [sys.executable, "-m", *launcher, *words], stdout=subprocess.PIPE, text=True, check=False
        )
        if done.returncode != 0 and not (Path(config.out) / "metrics.json").exists():
            _raise_if_diverged(Path(config.out))
            raise Stopped(f"a rank of {config.out} ended with {done.returncode}; the same command goes on")
        summary: dict[str, Any] = json.loads((Path(config.out) / "metrics.json").read_text(encoding="utf-8"))
        return summary

    def model(self, row: Row, pretrained: Outcome) -> Path:
        """Return the model directory that a row is judged by: the last one, or that of a checkpoint."""
        if self.config.model is not None:
            return Path(self.config.model)
        if row.step is None:
            return pretrained.directory / "model"
        directory = pretrained.directory / f"model-step-{row.step}"
        if not directory.exists():
            bundle = load_bundle(pretrained.directory / "model")
            model = BertForPreTraining(bundle.config)
            path = pretrained.directory / "checkpoints" / checkpoint.name_of(row.step) / "model.safetensors"
            model.load_state_dict(load_file(path))
            save_bundle(directory, model, bundle.tokenizer, bundle.task, f"# Checkpoint of step {row.step}\n")
        return directory

    def fine_tuned(self, row: Row, column: Column, seed: int, pretrained: Outcome) -> Outcome:
        """Return a row's fine-tuning on a column's task, trained if it is not there.

        Raises:
            InputError: the task's data or a setting is wrong.
        """
        config = self.finetuning(row, column, seed, self.model(row, pretrained))
        out = Path(config.out)
        if not (out / _RESULT).exists():
            self.say(f"fine-tuning {row.name} on {column.name}, seed {seed}")
            shutil.rmtree(out, ignore_errors=True)  # of a run that was killed
            try:
                summary = finetune(config)
                failed = [one["status"] for one in summary["seeds"] if one["status"] != LEARNED]
                result = {
                    "status": failed[0] if failed else "finished",
                    "metrics": summary["dev"],
                    "seconds": summary["train_seconds"],
                }
            except EveryRunDiverged as error:
                out.mkdir(parents=True, exist_ok=True)
                result = {"status": f"diverged: {error}", "metrics": {}, "seconds": 0.0}
            shutil.rmtree(out / "model", ignore_errors=True)  # its answers and figures stay
            write_json(out / _RESULT, result)
        return _outcome(out)

    def finetuning(self, row: Row, column: Column, seed: int, model: Path) -> FinetuneConfig:
        """Return the settings of a fine-tuning; its directory follows from them and from the model's."""
        changes = dict(column.changes) | dict(row.finetuning)
        data = str(task_directory(self.config.task_data, column.task))
        start = FinetuneConfig(column.task, str(model), data, "", features=changes.get("features"))
        config = overlay(
            RECIPES["default"](start),
            settings_in(words_for(column.task, self.config.finetuning), "--finetuning", _OWN_FINETUNING),
            "--finetuning",
        )
        config = dataclasses.replace(overlay(config, changes, f"row {row.name}"), seed=seed)
        identity = to_dict(config) | {"model": _named_in(model, self.out), "data": "", "out": ""}
        name = f"{column.task}-{_digest(identity)}-seed{seed}"
        return dataclasses.replace(config, out=str(self.out / "fine-tuned" / name))


def can_judge(column: Column, row: Row) -> bool:
    """Say whether a column's task has what a row's fine-tuning sets, such as a head on a frozen encoder."""
    if row.finetuning.get("bilstm") and "features" in column.changes:
        return False  # nothing but the head is trained there
    task = find_task(column.task)
    kind = task.frozen_kind if "features" in row.finetuning else task.kind
    return kind is not None and all(
        name in kind.settings for name in row.finetuning if name in all_settings()
    )


def task_of(word: str) -> str | None:
    """Return the task that a setting such as ``squad1:epochs=2`` is for; ``None``: for all."""
    task, has_task, _ = word.partition("=")[0].partition(":")
    return task.strip() if has_task else None


def words_for(task: str, words: Sequence[str]) -> list[str]:
    """Return the settings that a task has, without its name: those for all first, so that its own win."""
    own = [word.partition(":")[2] for word in words if task_of(word) == task]
    return [word for word in words if task_of(word) is None] + own


def settings_in(words: Sequence[str], flag: str, own: Sequence[str] = ()) -> dict[str, Any]:
    """Return settings given as NAME=VALUE as a settings file holds them, nested.

    Args:
        words: the settings.
        flag: that they follow, for messages.
        own: names that cannot be given so.

    Raises:
        InputError: one has no value, or is one of ``own``.
    """
    values = {}
    for word in words:
        name, has_value, text = word.partition("=")
        if not has_value:
            raise InputError(f"{flag} {word!r}: expected NAME=VALUE, such as batch-size=64")
        name = name.strip().replace("-", "_")
        if name in own:
            raise InputError(f"{flag} {word!r} would be ignored: ablate says {name} itself; leave it out")
        values[name] = text
    return nested(values, flag)


def _outcome(run: Path) -> Outcome:
    """Return what a run has written that it came to.

    Raises:
        InputError: the file is broken.
    """
    path = run / _RESULT
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
        outcome = Outcome(
            result["metrics"], result["status"], run, result["seconds"], result.get("mixture", {})
        )
        for value in (outcome.seconds, *outcome.metrics.values(), *outcome.mixture.values()):
            if not _is_number(value):
                raise ValueError(f"{value!r} is no number")
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(
            f"{path}: no result of a run ({error}); delete it, and the run is taken up"
        ) from None
    return outcome


def _raise_if_diverged(run: Path) -> None:
    """Raise what ended a run of several ranks, if its log says that it diverged for good."""
    events = read_run(run).events if (run / "metrics.jsonl").exists() else []
    if events and "diverged" in events[-1]:
        raise RunDivergedError(events[-1]["diverged"])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _named_in(path: Path, out: Path) -> str:
    """Return a path below the study's directory as it is there, so that a study can be moved."""
    path, out = path.resolve(), out.resolve()
    return str(path.relative_to(out) if path.is_relative_to(out) else path)


def _digest(identity: Changes) -> str:
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:8]
