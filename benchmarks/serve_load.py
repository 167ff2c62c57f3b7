"""Many clients at the same time: our server beside infinity-emb with the same model, taking turns.

    python benchmarks/serve_load.py [--peer-python PYTHON] [--seconds 120] [--clients 64] [--turns 4] [--json]
    python benchmarks/serve_load.py --soak 100000

Each client sends one text of 1 to some 300 words (sentences of SST-2, questions and passages of SQuAD, from
BERTSMITH_DATA) to /v1/embeddings, waits for its vector, and sends the next. Every vector is compared with the
one computed here before: below a cosine of 0.999 an answer counts as mixed up. infinity-emb needs packages of
its own versions: name the Python of an environment that has it (pip install "infinity-emb[server,torch]").

``--soak N`` sends N requests to ours alone and tells the memory that the process holds meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import gzip
import json
import os
import random
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith import predictor
from bertsmith.bench.turns import OURS, lines_of, report
from local_data import data_directory, minilm_directory

PEER = "infinity-emb"
SAME = 0.999
SOAK_STEPS = 10
HEAD = (
    "POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"
)


@dataclass
class Side:
    """One server and what it has done so far.

    Attributes:
        process: of the server.
        port: where it listens.
        latencies: of its answers, in seconds.
        seconds: that it was asked for.
        processor_seconds: that it used meanwhile.
        errors: answers that are none.
        mixed_up: vectors of another text.
        memory: bytes held after each turn.
    """

    process: subprocess.Popen[bytes]
    port: int
    latencies: list[float] = field(default_factory=list)
    seconds: float = 0.0
    processor_seconds: float = 0.0
    errors: int = 0
    mixed_up: int = 0
    memory: list[int] = field(default_factory=list)

    def figures(self) -> dict[str, float]:
        """Return what is told about it."""
        count = len(self.latencies)
        median, late = np.percentile(self.latencies, [50, 99]) if count else (0.0, 0.0)
        return {
            "requests": count,
            "p50_ms": round(1000 * float(median), 1),
            "p99_ms": round(1000 * float(late), 1),
            "processor_ms_a_request": round(1000 * self.processor_seconds / max(count, 1), 2),
            "errors": self.errors,
            "mixed_up": self.mixed_up,
            "memory_mb": round(self.memory[-1] / 1e6) if self.memory else 0,
        }


def mixed_texts(number: int) -> list[str]:
    """Return sentences, questions and passages, as many as asked, no two alike."""
    data = data_directory()
    if data is None:
        sys.exit("set BERTSMITH_DATA to the folder of real data")
    lines = gzip.decompress((data / "glue/SST-2/dev.tsv.gz").read_bytes()).decode().splitlines()[1:]
    articles = json.loads(gzip.decompress((data / "squad/dev-v1.1.rebuilt.json.gz").read_bytes()))["data"]
    passages = [part for article in articles for part in article["paragraphs"]]
    kinds = [
        [line.split("\t")[0].strip() for line in lines],
        [question["question"].strip() for part in passages for question in part["qas"]],
        [part["context"].strip() for part in passages],
    ]
    draw = random.Random(0)
    chosen = [text for kind in kinds for text in draw.sample(sorted(set(kind)), number // 3)]
    draw.shuffle(chosen)
    return chosen


@contextlib.contextmanager
def started(command: Sequence[str]) -> Iterator[Side]:
    """Run a server; {port} in the command is a free port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [word.replace("{port}", str(port)) for word in command]
    environment = {**os.environ, "INFINITY_ANONYMOUS_USAGE_STATS": "0", "HF_HUB_OFFLINE": "1"}
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    try:
        deadline = time.monotonic() + 300
        while not answers(port):
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"the server does not start: {' '.join(words)}")
            time.sleep(0.5)
        yield Side(process, port)
    finally:
        process.terminate()
        process.wait(60)


def answers(port: int) -> bool:
    """Return whether something serves there."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=5) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


def used(side: Side) -> tuple[float, int]:
    """Return processor seconds and bytes of memory of a server."""
    place = Path(f"/proc/{side.process.pid}")
    times = (place / "stat").read_text().rpartition(")")[2].split()
    ticks = int(times[11]) + int(times[12])
    held = re.search(r"VmRSS:\s+(\d+)", (place / "status").read_text())
    assert held is not None
    return ticks / os.sysconf("SC_CLK_TCK"), 1024 * int(held[1])


@dataclass(frozen=True)
class Work:
    """What clients ask.

    Attributes:
        bodies: requests.
        vectors: float32 ``(requests, hidden)``, what has to come back.
    """

    bodies: list[bytes]
    vectors: NDArray[np.float32]


def work_of(model: str, name: str, number: int) -> Work:
    """Return requests with their answers."""
    texts = mixed_texts(number)
    bodies = [
        json.dumps({"model": name, "input": [text], "encoding_format": "base64"}).encode() for text in texts
    ]
    return Work(bodies, predictor.load(model).embed(texts, normalize=True).vectors)


async def client(side: Side, work: Work, turns: Iterator[int], until: float) -> None:
    """Send one request after the other until the time is up or there are no more."""
    reader, writer = await asyncio.open_connection("127.0.0.1", side.port)
    for turn in turns:
        body = work.bodies[turn % len(work.bodies)]
        begun = time.monotonic()
        if begun > until:
            break
        writer.write(HEAD.format(len(body)).encode() + body)
        answer = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = re.search(rb"content-length: (\d+)", answer)
        content = await reader.readexactly(int(length[1])) if length else b""
        side.latencies.append(time.monotonic() - begun)
        if b" 200 " not in answer.split(b"\r\n", 1)[0]:
            side.errors += 1
            continue
        vector = np.frombuffer(base64.b64decode(json.loads(content)["data"][0]["embedding"]), "<f4")
        expected = work.vectors[turn % len(work.bodies)]
        side.mixed_up += float(vector @ expected) < SAME * float(np.linalg.norm(vector))
    writer.close()


def turn_of(side: Side, work: Work, clients: int, seconds: float, requests: Iterator[int]) -> None:
    """Have all clients ask one server at the same time, and note what it took."""
    processor, _ = used(side)
    begun = time.monotonic()

    async def all_clients() -> None:
        until = begun + seconds
        await asyncio.gather(*(client(side, work, requests, until) for _ in range(clients)))

    asyncio.run(all_clients())
    side.seconds += time.monotonic() - begun
    after, memory = used(side)
    side.processor_seconds += after - processor
    side.memory.append(memory)


def ours_command(options: argparse.Namespace) -> list[str]:
    """Return how our server is started."""
    command = [sys.executable, "-m", "bertsmith", "serve", "--model", f"minilm={options.model}"]
    return [*command, "--port", "{port}", "--precision", options.precision]


def peer_command(options: argparse.Namespace) -> list[str]:
    """Return how infinity-emb is started: its defaults, but for the same model and place."""
    command = [
        options.peer_python,
        "-c",
        "from infinity_emb.cli import cli; cli()",
        "v2",
        "--model-id",
        options.model,
        "--host",
        "127.0.0.1",
    ]
    more = ["--served-model-name", "minilm", "--engine", "torch", "--device", "cpu", "--url-prefix", "/v1"]
    return [*command, "--port", "{port}", *more]


def load(options: argparse.Namespace) -> dict[str, Any]:
    """Measure both sides in turns."""
    work = work_of(options.model, "minilm", options.texts)
    with contextlib.ExitStack() as stack:
        sides = {OURS: stack.enter_context(started(ours_command(options)))}
        if options.peer_python:
            sides[PEER] = stack.enter_context(started(peer_command(options)))
        for side in sides.values():  # warm up; not counted
            turn_of(side, work, options.clients, 3, iter(range(10**9)))
            side.latencies.clear()
            side.seconds = side.processor_seconds = 0.0
        for _ in range(options.turns):
            for side in sides.values():
                turn_of(side, work, options.clients, options.seconds / options.turns, iter(range(10**9)))
    speeds = {name: len(side.latencies) / side.seconds for name, side in sides.items()}
    title = f"{options.clients} clients, mixed lengths, {options.seconds:g} s each"
    figures = {name: side.figures() for name, side in sides.items()}
    return report(title, speeds, "requests/s", precision=options.precision, sides=figures)


def soak(options: argparse.Namespace) -> dict[str, Any]:
    """Send many requests to ours and note the memory."""
    work = work_of(options.model, "minilm", options.texts)
    with started(ours_command(options)) as side:
        for step in range(SOAK_STEPS):
            part = options.soak // SOAK_STEPS
            turn_of(side, work, options.clients, float("inf"), iter(range(step * part, (step + 1) * part)))
    speed = len(side.latencies) / side.seconds
    memory = [round(bytes_held / 1e6, 1) for bytes_held in side.memory]
    return report(
        "memory over many requests",
        {OURS: speed},
        "requests/s",
        memory_mb=memory,
        sides={OURS: side.figures()},
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default=None, help="default: the installed MiniLM-L6")
    parser.add_argument("--peer-python", help="Python of an environment with infinity-emb")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--texts", type=int, default=900)
    parser.add_argument("--soak", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.model = options.model or minilm_directory()
    result = soak(options) if options.soak else load(options)
    print(json.dumps(result) if options.json else "\n".join(lines_of(result)))
    return 1 if any(side["errors"] or side["mixed_up"] for side in result["sides"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
