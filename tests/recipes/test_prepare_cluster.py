"""prepare in stages, over ranks: in a loop, in any order, and on datatrove."""

from __future__ import annotations

import gzip
import os
from dataclasses import replace
from pathlib import Path

import pytest

from bertsmith.errors import InputError
from bertsmith.recipes.config import PrepareConfig
from bertsmith.recipes.prepare import prepare
from bertsmith.recipes.prepare_cluster import stages
from tests.recipes.preparing import contents, real_settings


@pytest.fixture(scope="module")
def config(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> PrepareConfig:
    """Settings for three files of the starter corpus, two sources."""
    folder = tmp_path_factory.mktemp("cluster")
    config = real_settings(shared_data, folder)
    text = gzip.decompress(Path(config.corpus[0]).read_bytes()).decode()
    documents = text.split("\n\n")[:60]
    for number, name in enumerate(("books/a.txt", "books/b.txt", "more/c.txt")):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("\n\n".join(documents[number::3]))
    corpus = [str(folder / "books"), str(folder / "more")]
    return replace(config, corpus=corpus, shard_size="128K", passes=2)


@pytest.fixture(scope="module")
def expected(config: PrepareConfig) -> dict[str, str]:
    prepare(config)
    return contents(Path(config.out))


def test_ranks_in_any_order_give_the_shards_of_prepare(
    config: PrepareConfig, expected: dict[str, str], tmp_path: Path
) -> None:
    made = stages(replace(config, out=str(tmp_path / "data")), tasks=5)
    assert [(stage.name, stage.tasks) for stage in made] == [
        ("encode", 3), ("join", 1), ("pair", 5), ("finish", 1),
    ]  # fmt: skip
    for stage in made:
        for rank in reversed(range(stage.tasks)):
            stage(None, rank, stage.tasks)
            if stage.name != "finish":
                stage(None, rank, stage.tasks)  # a rank that is run again changes nothing
    assert os.listdir(tmp_path) == ["data"]
    assert contents(tmp_path / "data") == expected


def test_a_rank_with_other_settings_is_refused(config: PrepareConfig, tmp_path: Path) -> None:
    encode = stages(replace(config, out=str(tmp_path / "data")), tasks=2)[0]
    with pytest.raises(InputError, match="seq_len was 128, is 64"):
        replace(encode, config=replace(encode.config, seq_len=64))()


def test_datatrove_gives_the_shards_of_prepare(
    config: PrepareConfig, expected: dict[str, str], tmp_path: Path
) -> None:
    from datatrove.executor import LocalPipelineExecutor

    before = None
    for stage in stages(replace(config, out=str(tmp_path / "data")), tasks=4):
        before = LocalPipelineExecutor(
            pipeline=[stage],
            tasks=stage.tasks,
            workers=2,
            depends=before,
            logging_dir=str(tmp_path / "logs" / stage.name),
        )
    assert before is not None
    before.run()
    assert contents(tmp_path / "data") == expected
