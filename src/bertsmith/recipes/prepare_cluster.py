"""``prepare`` spread over the machines of a cluster, on an engine of the user's choice; the same shards.

The engine only has to call each stage once a rank, and the stages one after another: datatrove's executors do
(on one machine, under Slurm, on Ray), so does a loop. The build directory beside ``out`` has to lie on a file
system that all machines share.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from bertsmith.data.build import pair_tasks, write_rows
from bertsmith.data.build_directory import BuildDirectory, locked_build
from bertsmith.data.encoded import encode_files
from bertsmith.data.flat import join
from bertsmith.recipes.config import PrepareConfig
from bertsmith.recipes.prepare import prepare
from bertsmith.recipes.prepare_build import Preparation


@dataclass(frozen=True)
class Stage:
    """One stage of ``prepare``: call it once for each rank.

    Attributes:
        name: "encode", "join", "pair" or "finish".
        config: the settings.
        tasks: ranks that it can be spread over.
    """

    name: str
    config: PrepareConfig
    tasks: int

    def __call__(self, data: object = None, rank: int = 0, world_size: int = 1) -> None:
        """Do the part of one rank. What is whole already is left as it is, so a failed rank is run again.

        Args:
            data: not used; datatrove hands on what the step before made.
            rank: below ``world_size``.
            world_size: ranks that share the stage.
        """
        _STAGES[self.name](self.config, rank, world_size)


def stages(config: PrepareConfig, tasks: int) -> list[Stage]:
    """Begin the build of ``config.out`` and return its stages; each needs the one before.

    Args:
        config: as for ``prepare``; ``workers`` counts in the last stage alone, the other ranks are one
            process each.
        tasks: ranks to spread over, such as the processors of the cluster. A file is encoded by one rank, so
            the first stage has no more than there are files.

    Raises:
        InputError: as ``prepare``.
    """
    work = Preparation.of(config)
    with locked_build(work.out, work.plan(), config.resume):
        pass
    ranks = {"encode": min(tasks, len(work.files)), "pair": tasks}
    return [Stage(name, config, ranks.get(name, 1)) for name in _STAGES]


def _opened(config: PrepareConfig) -> tuple[Preparation, BuildDirectory]:
    work = Preparation.of(config)
    build = BuildDirectory.beside(work.out)
    build.check_plan(work.plan())
    return work, build


def _encode(config: PrepareConfig, rank: int, world_size: int) -> None:
    work, build = _opened(config)
    files = [(number, file.path) for number, file in enumerate(work.files)]
    encode_files(files[rank::world_size], work.encoding_job(), build.encoded, 1, lambda *_: None)


def _join(config: PrepareConfig, rank: int, world_size: int) -> None:
    work, build = _opened(config)
    if not build.flat.is_dir():
        join(build.encoded, work.file_sources, build.flat)


def _pair(config: PrepareConfig, rank: int, world_size: int) -> None:
    work, build = _opened(config)
    for job in work.pairing_jobs(build).values():
        write_rows(job, pair_tasks(job.open(), job.config)[rank::world_size])


def _finish(config: PrepareConfig, rank: int, world_size: int) -> None:
    prepare(replace(config, resume=True))


_STAGES: dict[str, Callable[[PrepareConfig, int, int], None]] = {
    "encode": _encode,
    "join": _join,
    "pair": _pair,
    "finish": _finish,
}
