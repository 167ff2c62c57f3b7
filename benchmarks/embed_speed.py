"""Speed of embedding sentences, and cosines: ours beside sentence-transformers and its backends, in turns.

    python benchmarks/embed_speed.py [--model MODEL] [--sentences 3000] [--repeats 5] [--json]
                                     [--peer-python PYTHON]

Without --model the installed MiniLM-L6 is taken. The sentences are English ones out of the folder of real
data (BERTSMITH_DATA), the same in every run. The backends onnxruntime and OpenVINO need other packages than
the project: --peer-python names the Python of an environment with sentence-transformers, optimum-onnx and
optimum-intel[openvino]; without it they are left out. What is measured, and how:
``bertsmith/bench/embedding.py``.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bertsmith import predictor
from bertsmith.bench import embedding
from bertsmith.bench.turns import lines_of
from bertsmith.device import set_threads
from bertsmith.text.sentences import split_sentences
from local_data import data_directory, minilm_directory

CORPUS = "corpus/starter-en.txt.gz"
BACKENDS = {
    "sentence-transformers onnxruntime int8": "onnx-int8",
    "sentence-transformers OpenVINO": "openvino",
}
SHORTEST = 20
"""Characters of the shortest sentence that is taken."""


class PeerProcess:
    """A peer in another Python; embeds when called."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self._folder = folder
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._wait("ready")

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors of texts."""
        job = {"texts": str(self._folder / "texts.json"), "vectors": str(self._folder / "vectors.npy")}
        Path(job["texts"]).write_text(json.dumps(list(texts)), encoding="utf-8")
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        self._wait("done")
        vectors: NDArray[np.float32] = np.load(job["vectors"])
        return vectors

    def _wait(self, word: str) -> None:
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != word:
            sys.exit("a peer failed; its message is above")

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def sentences(number: int) -> list[str]:
    """Return English sentences, always the same."""
    data = data_directory()
    if data is None or not (data / CORPUS).is_file():
        sys.exit(f"no {CORPUS} in the folder of real data; set BERTSMITH_DATA")
    with gzip.open(data / CORPUS, "rt", encoding="utf-8") as file:
        found = [sentence for line in file for sentence in split_sentences(line) if len(sentence) >= SHORTEST]
    random.Random(0).shuffle(found)
    return found[:number]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model")
    parser.add_argument("--sentences", type=int, default=3000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--peer-python")
    parser.add_argument("--json", action="store_true")
    flags = parser.parse_args()
    model = flags.model or minilm_directory()
    threads, seq_len = set_threads(None), predictor.load(model).seq_len
    with tempfile.TemporaryDirectory() as folder:
        peers: dict[str, PeerProcess] = {}
        script = str(Path(__file__).with_name("embed_peer.py"))
        for name, backend in BACKENDS.items() if flags.peer_python else ():
            command = [flags.peer_python, script, model, backend, str(seq_len), str(threads)]
            peers[name] = PeerProcess(command, Path(folder))
        try:
            result = embedding.compare(model, sentences(flags.sentences), flags.repeats, peers)
        finally:
            for peer in peers.values():
                peer.close()
    print(json.dumps(result) if flags.json else "\n".join(lines_of(result)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
