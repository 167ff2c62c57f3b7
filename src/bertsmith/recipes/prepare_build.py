"""What ``prepare`` and its cluster stages share: inputs, the plan of the build, the jobs of both stages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bertsmith.config import bytes_of, to_dict
from bertsmith.data.build import PairingJob, choose_heldout
from bertsmith.data.build_directory import BuildDirectory
from bertsmith.data.encoded import EncodingJob, read_record
from bertsmith.data.encoders import choose_encoder
from bertsmith.data.flat import read_counts
from bertsmith.data.shards import FORMAT, FORMAT_VERSION, MOST_SOURCES, id_dtype
from bertsmith.errors import InputError
from bertsmith.randomness import seed_of
from bertsmith.recipes.config import PrepareConfig
from bertsmith.remote import RemoteFile, exists, is_url
from bertsmith.text.corpus_files import CorpusFile, file_bytes, list_sources, total_bytes
from bertsmith.text.streams import BLOCK_BYTES
from bertsmith.text.tokenizer import Tokenizer

_LARGE_CORPUS_BYTES = 1 << 30
_LARGE_BLOCK_BYTES = 1 << 22
"""Blocks of a large corpus are larger: fewer files."""
_SMALLEST_SHARD_BYTES = 1 << 12


@dataclass(frozen=True)
class Preparation:
    """The inputs of one call of ``prepare``, checked.

    Attributes:
        config: the settings.
        out: the local directory that is made.
        tokenizer: of the vocabulary.
        files: of the corpus.
        encoder: "tokenizers" or "nanotoken".
    """

    config: PrepareConfig
    out: Path
    tokenizer: Tokenizer
    files: list[CorpusFile]
    encoder: str

    @classmethod
    def of(cls, config: PrepareConfig) -> Preparation:
        """Check the settings and find the inputs.

        Raises:
            InputError: the settings, the vocabulary or the corpus are wrong.
        """
        out = _local_directory(config.out)
        _check_settings(config, out)
        tokenizer = Tokenizer.load(config.vocab)
        files = list_sources(config.corpus)
        return cls(config, out, tokenizer, files, choose_encoder(config.encoder, tokenizer))

    @cached_property
    def source_names(self) -> list[str]:
        """The sources of the corpus, each once, in the order of the files."""
        names = list(dict.fromkeys(file.source for file in self.files))
        if len(names) > MOST_SOURCES:
            raise InputError(
                f"the corpus has {len(names)} sources, at most {MOST_SOURCES} are possible: name them, "
                "--corpus NAME=PATH"
            )
        return names

    @cached_property
    def file_sources(self) -> list[int]:
        """Number of the source of each file."""
        numbers = {name: number for number, name in enumerate(self.source_names)}
        return [numbers[file.source] for file in self.files]

    def plan(self) -> dict[str, Any]:
        """Return what a build that is resumed must have in common with its beginning."""
        return {
            "bertsmith_version": version("bertsmith"),
            "settings": self.settings(),
            "vocabulary": self.tokenizer.identity(),
            "block_bytes": self._block_bytes(),
            "inputs": [_stamped(file) for file in self.files],
        }

    def settings(self) -> dict[str, Any]:
        """Return the settings that the result depends on."""
        settings = to_dict(self.config)
        for name in ("corpus", "out", "workers", "resume", "encoder"):
            del settings[name]
        return settings

    def encoding_job(self) -> EncodingJob:
        """Return the job of stage one."""
        return EncodingJob(self.tokenizer, self.config.text, self.encoder, self._block_bytes())

    def pairing_jobs(self, build: BuildDirectory) -> dict[str, PairingJob]:
        """Return the job of stage two for each split; stage one is done."""
        config = self.config
        documents = read_counts(build.flat).documents
        train, heldout = choose_heldout(documents, config.heldout, config.pairing, config.seed)
        once = replace(config.pairing_config, passes=1)
        separators = (self.tokenizer.cls_id, self.tokenizer.sep_id)
        return {
            split: PairingJob(
                build.flat, chosen, pairing, seed, self.tokenizer.vocab_size, separators, build.rows(split)
            )
            for split, chosen, pairing, seed in (
                ("train", train, config.pairing_config, config.seed),
                ("heldout", heldout, once, seed_of(config.seed, "heldout-pairing")),
            )
        }

    def shard_pieces(self) -> int:
        """Return the pieces after which a shard is full."""
        return bytes_of(self.config.shard_size) // id_dtype(self.tokenizer.vocab_size).itemsize

    def manifest(
        self, build: BuildDirectory, corpus: dict[str, Any], splits: dict[str, Any]
    ) -> dict[str, Any]:
        """Return what ties the data to its inputs; nothing in it depends on the machine or on the time."""
        inputs = []
        for number, file in enumerate(self.files):
            record = read_record(build.encoded, number)
            assert record is not None, f"{file.path} is not done"
            entry = {"file": str(file.path), "source": file.source}
            inputs.append({**entry, "bytes": record["bytes"], "sha256": record["sha256"]})
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "bertsmith_version": version("bertsmith"),
            "inputs": inputs,
            "sources": self.source_names,
            "vocabulary": {"size": self.tokenizer.vocab_size, "identity": self.tokenizer.identity()},
            "settings": self.settings(),
            "corpus": corpus,
            "splits": splits,
        }

    def check_pipes(self, build: BuildDirectory) -> None:
        """Refuse to go on where a pipe was cut: it cannot be read again.

        Raises:
            InputError: a pipe is among the files that are not done.
        """
        if not build.was_there:
            return
        for number, file in enumerate(self.files):
            is_pipe = file_bytes(file.path) is None
            if is_pipe and not build.flat.is_dir() and read_record(build.encoded, number) is None:
                raise InputError(
                    f"corpus {file.path}: a pipe or standard input cannot be read again, so this build "
                    "cannot be resumed; it was removed: begin anew"
                )

    def _block_bytes(self) -> int:
        is_large = total_bytes([file.path for file in self.files]) >= _LARGE_CORPUS_BYTES
        return _LARGE_BLOCK_BYTES if is_large else BLOCK_BYTES


def _local_directory(out: str) -> Path:
    """Return where a data directory is built: for a URL here, until it is uploaded."""
    if not is_url(out):
        return Path(out)
    if exists(f"{out.rstrip('/')}/manifest.json"):
        raise InputError(f"out {out} exists already; remove it or name another place")
    return Path.cwd() / out.rstrip("/").rpartition("/")[2]


def _check_settings(config: PrepareConfig, out: Path) -> None:
    """Refuse wrong settings before any work."""
    if not 0.0 <= config.heldout < 1.0:
        raise InputError(f"heldout is {config.heldout}; it has to be at least 0 and below 1")
    _ = config.pairing_config  # checks itself
    if bytes_of(config.shard_size) < _SMALLEST_SHARD_BYTES:
        raise InputError(f"shard-size is {config.shard_size}; it has to be at least 4K; 64M is usual")
    if out.name in ("", ".."):
        raise InputError(
            f"out is {config.out!r}; it has to name a new directory, which appears when it is whole"
        )
    if not is_url(config.out) and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"out {out} exists already; remove it or name another directory")


def _stamped(file: CorpusFile) -> dict[str, Any]:
    """Return what tells whether a file has changed, without reading it; nothing is known of a pipe."""
    path = file.path
    num_bytes = file_bytes(path)
    stamp: Any = None
    if isinstance(path, RemoteFile):
        stamp = path.stamp()
    elif num_bytes is not None:
        stamp = path.stat().st_mtime_ns
    return {"file": str(path), "source": file.source, "bytes": num_bytes, "stamp": stamp}
