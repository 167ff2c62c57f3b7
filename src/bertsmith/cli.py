"""The command line: find the verb, build its settings, call one function. No logic."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import errno
import importlib
import io
import json
import logging
import os
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import tyro
import yaml

from bertsmith import presets
from bertsmith.config import nearest, overlay, to_dict
from bertsmith.errors import InputError, RunError
from bertsmith.experiments.config import AblateConfig
from bertsmith.recipes import config as verbs
from bertsmith.recipes.convert_config import ConvertConfig
from bertsmith.recipes.embed_config import EmbedConfig
from bertsmith.recipes.export_config import ExportConfig
from bertsmith.recipes.finetune_recipes import RECIPES
from bertsmith.recipes.glue_config import GlueConfig
from bertsmith.recipes.machine_config import BenchConfig, PlanConfig
from bertsmith.recipes.pretrain_config import PretrainConfig
from bertsmith.recipes.search_config import SearchConfig
from bertsmith.serving.config import ServeConfig

VERBS: dict[str, type[Any]] = {
    "vocab": verbs.VocabConfig,
    "prepare": verbs.PrepareConfig,
    "pretrain": PretrainConfig,
    "finetune": verbs.FinetuneConfig,
    "evaluate": verbs.EvaluateConfig,
    "predict": verbs.PredictConfig,
    "glue": GlueConfig,
    "fill": verbs.FillConfig,
    "embed": EmbedConfig,
    "search": SearchConfig,
    "serve": ServeConfig,
    "convert": ConvertConfig,
    "export": ExportConfig,
    "doctor": verbs.DoctorConfig,
    "plan": PlanConfig,
    "report": verbs.ReportConfig,
    "ablate": AblateConfig,
    "bench": BenchConfig,
    "demo": verbs.DemoConfig,
}
"""Each verb's settings; the function is ``bertsmith.recipes.VERB.VERB``, but for those in ``_MODULES``."""
_MODULES = {
    "report": "bertsmith.experiments.report",
    "ablate": "bertsmith.experiments.ablation",
    "serve": "bertsmith.serving.serve",
}

DONE, FAILED, WRONG_USAGE = 0, 1, 2
_TOGETHER = ("pretrain",)
"""Verbs that several processes can run together, started by torchrun."""
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_MAKE_ROOM = "; what was there before is kept: make room, and start it again"
_WRONG_PATHS = (FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError, PermissionError)


@dataclass(frozen=True)
class Output:
    """What every verb takes besides its settings.

    Attributes:
        config: a YAML file of settings; flags win over it.
        print_config: print the resolved settings as YAML and stop.
        json: print one JSON object on standard output and nothing else there.
    """

    config: str | None = None
    print_config: tyro.conf.FlagCreatePairsOff[bool] = False
    json: tyro.conf.FlagCreatePairsOff[bool] = False


def run(arguments: Sequence[str]) -> int:
    """Run one command line.

    Args:
        arguments: the words after ``bertsmith``.

    Returns:
        The exit code: 0 done, 1 failed, 2 wrong usage or input.
    """
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_overview())
        return DONE
    if arguments[0] == "--version":
        print(_version())
        return DONE
    verb = arguments[0]
    if isinstance(sys.stdout, io.TextIOWrapper):  # a text of the data may hold what no encoding can
        sys.stdout.reconfigure(errors="backslashreplace")
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s", stream=sys.stderr)
    try:
        with _threads_in_one_line(verb):
            return _run_verb(verb, list(arguments[1:]))
    except InputError as error:
        print(f"bertsmith {verb}: {' '.join(str(error).split())}", file=sys.stderr)
        return WRONG_USAGE
    except KeyboardInterrupt:
        print(f"bertsmith {verb}: interrupted", file=sys.stderr)
        return FAILED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except _WRONG_PATHS as error:
        print(f"bertsmith {verb}: {error}; give a path that can be used", file=sys.stderr)
        return WRONG_USAGE
    except (RunError, OSError) as error:
        is_full = isinstance(error, OSError) and error.errno in _NO_ROOM
        print(f"bertsmith {verb}: {error}{_MAKE_ROOM if is_full else ''}", file=sys.stderr)
        return FAILED


@contextlib.contextmanager
def _threads_in_one_line(verb: str) -> Iterator[None]:
    """Tell in a line what a thread of a library, TensorBoard's, met on the disk."""
    before = threading.excepthook

    def told(failed: threading.ExceptHookArgs) -> None:
        if isinstance(failed.exc_value, OSError):
            print(f"bertsmith {verb}: WARNING: {failed.exc_value}", file=sys.stderr)
        else:
            before(failed)

    threading.excepthook = told
    try:
        yield
    finally:
        threading.excepthook = before


def _run_verb(verb: str, arguments: list[str]) -> int:
    if verb not in VERBS:
        raise InputError(f"unknown verb {verb!r}; {nearest(verb, list(VERBS))}; see bertsmith --help")
    if any(word in ("-h", "--help") for word in arguments):
        with contextlib.suppress(SystemExit):
            _parse(verb, ["--help"], _defaults(verb, arguments))
        return DONE
    settings, output = _parse(verb, arguments, _defaults(verb, arguments))
    _check_seed(settings)
    if verb == "pretrain":
        _check_architecture(settings)
    if output.print_config:
        print(yaml.safe_dump(to_dict(settings), sort_keys=False, allow_unicode=True), end="")
        return DONE
    rank = int(os.environ.get("RANK", "0"))
    is_together = "RANK" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1
    if is_together and verb not in _TOGETHER:
        raise InputError(f"{verb} is done by one process; start it without torchrun")
    recipe = importlib.import_module(_MODULES.get(verb, f"bertsmith.recipes.{verb}"))
    try:
        summary: dict[str, Any] = getattr(recipe, verb)(settings)
    except OSError as error:
        if error.errno in _NO_ROOM and error.filename is None:  # writing into an open file names none
            error.filename = getattr(settings, "out", None)
        raise
    if hasattr(recipe, "show") and not output.json:
        recipe.show(summary)
    elif rank == 0:  # the others would say the same
        _print_summary(summary, output.json, rows_on_stdout=getattr(settings, "out", None) == "-")
    return FAILED if summary.get("interrupted") or summary.get("failed") else DONE


def _check_seed(settings: Any) -> None:
    """Refuse a seed that would draw the same numbers as another one (``randomness.generator``)."""
    seed = getattr(settings, "seed", 0)
    if not 0 <= seed < 1 << 63:
        raise InputError(f"--seed is {seed}; it has to be from 0 to {(1 << 63) - 1}")


def _check_architecture(settings: PretrainConfig) -> None:
    """Refuse a shape for a model that has its own."""
    preset = presets.PRESETS[settings.preset](settings.data, settings.out)
    if settings.init is not None and settings.architecture != preset.architecture:
        raise InputError(
            f"--architecture is given with --init {settings.init}, whose architecture counts; leave it out "
            "(--dropout overrides the model's)"
        )


def _defaults(verb: str, arguments: list[str]) -> Any:
    """Return the settings below the flags: the preset or recipe, and over it the YAML file."""
    early = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for flag in ("--config", "--preset", "--recipe", "--task", "--features"):
        early.add_argument(flag)
    try:
        found, _ = early.parse_known_args(arguments)
    except argparse.ArgumentError as error:
        raise InputError(str(error)) from error
    changes = {} if found.config is None else _read_yaml(found.config)
    required = {
        field.name: tyro.MISSING
        for field in dataclasses.fields(VERBS[verb])
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }
    if verb in ("pretrain", "plan"):
        name = found.preset or changes.get("preset", VERBS[verb].preset)
        if str(name) not in presets.PRESETS:
            raise InputError(f"unknown preset {name!r}; {nearest(str(name), list(presets.PRESETS))}")
        base: Any = presets.PRESETS[name](tyro.MISSING, tyro.MISSING)  # data and out
        base = PlanConfig.of_preset(base) if verb == "plan" else base
    else:
        base = VERBS[verb](**required)
    if verb == "finetune":
        name = str(found.recipe or changes.get("recipe", base.recipe))
        if name not in RECIPES:
            raise InputError(f"unknown recipe {name!r}; {nearest(name, list(RECIPES))}")
        chosen = {key: getattr(found, key) or changes.get(key) for key in ("task", "features")}
        base = RECIPES[name](
            dataclasses.replace(base, **{key: value for key, value in chosen.items() if value})
        )
    return overlay(base, changes, found.config) if changes else base


def _read_yaml(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8-sig") as file:
            content = yaml.safe_load(file)
    except FileNotFoundError:
        raise InputError(f"--config {path}: no such file; give a YAML file of settings") from None
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        raise InputError(f"--config {path}: no YAML: {error}") from error
    if not isinstance(content, dict):
        raise InputError(f"--config {path}: expected settings as 'name: value' lines; see --print-config")
    return content


def _parse(verb: str, arguments: list[str], default: Any) -> tuple[Any, Output]:
    """Return the settings that the flags give over the default, and the output wishes."""
    flat = tyro.conf.arg(name="")
    command = dataclasses.make_dataclass(
        "Command",
        [
            ("settings", Annotated[type(default), flat], dataclasses.field(default=default)),
            ("output", Annotated[Output, flat], dataclasses.field(default=Output())),
        ],
    )
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            parsed: Any = tyro.cli(
                command, args=arguments, prog=f"bertsmith {verb}", description=_headline(type(default))
            )
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise InputError(_one_line(errors.getvalue(), verb)) from None
    return parsed.settings, parsed.output


def _one_line(box: str, verb: str) -> str:
    """Return the first words of an error box as one line."""
    lines = [line for line in box.splitlines() if not line.startswith(("╭", "╰"))]
    words = re.sub(r"[│─]+|-{5,}", " ", "\n".join(lines))
    words = re.sub(r"(For full|Argument) helptext.*", "", words, flags=re.DOTALL)
    return f"{' '.join(words.split())}; see bertsmith {verb} --help"


def _print_summary(summary: dict[str, Any], as_json: bool, rows_on_stdout: bool) -> None:
    """Print what a verb returns: JSON for programs, YAML for people."""
    stream = sys.stderr if rows_on_stdout else sys.stdout
    if as_json:
        print(json.dumps(summary, ensure_ascii=False), file=stream)
    else:
        print(yaml.safe_dump(summary, sort_keys=False, allow_unicode=True, width=110), end="", file=stream)


def _overview() -> str:
    lines = ["usage: bertsmith VERB [flags]    (bertsmith VERB --help explains each)", ""]
    for verb, settings in VERBS.items():
        lines.append(f"  {verb:<10}{_headline(settings)}")
    return "\n".join([*lines, "", "  --version prints the version."])


def _headline(settings: type[Any]) -> str:
    return (settings.__doc__ or "").splitlines()[0]


def _version() -> str:
    from importlib.metadata import version

    return f"bertsmith {version('bertsmith')}"
