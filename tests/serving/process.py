"""The verb ``serve`` as a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.serving.running import Client


@dataclass
class Server:
    """A process that serves; ``log`` grows while it does."""

    process: subprocess.Popen[str]
    log: list[dict[str, Any]] = field(default_factory=list)
    listening: threading.Event = field(default_factory=threading.Event)

    def read_log(self) -> None:
        """Read standard error to its end; every line is a JSON object."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(json.loads(line))
            if self.log[-1]["event"] == "serving":
                self.listening.set()
        self.listening.set()

    @property
    def client(self) -> Client:
        url = next(line["url"] for line in self.log if line["event"] == "serving")
        port = urlsplit(url).port
        assert port is not None
        return Client(port)

    @property
    def memory(self) -> int:
        """Bytes that the process holds."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))

    def stop(self) -> int:
        """Ask it to stop and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


@contextlib.contextmanager
def server(models: Mapping[str, Path], *flags: str) -> Iterator[Server]:
    """Start a server and wait until it listens; end it with the block."""
    named = [f"{name}={path}" for name, path in models.items()]
    command = [sys.executable, "-m", "bertsmith", "serve", "--model", *named, "--port", "0", *flags]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    started = Server(process)
    reader = threading.Thread(target=started.read_log, daemon=True)
    reader.start()
    try:
        assert started.listening.wait(120)
        assert process.poll() is None, started.log
        yield started
    finally:
        process.kill()
        process.wait(30)
        reader.join(30)
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()
