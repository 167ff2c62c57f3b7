"""Peak memory over processes."""

from __future__ import annotations

import mmap
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from bertsmith.memory import PeakMemory, own_memory_bytes

MEBIBYTE = 1 << 20
CHILD = "import sys; block = bytearray(b'x') * (200 << 20); print('ready', flush=True); sys.stdin.read()"
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")


@linux_only
def test_the_peak_counts_children_and_outlives_them() -> None:
    before = own_memory_bytes()
    with PeakMemory() as memory:
        child = subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        time.sleep(0.5)
        child.communicate()
    grown = (memory.mebibytes or 0) - before / MEBIBYTE
    assert 195 < grown < 260


@linux_only
def test_pages_of_mapped_files_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "zeros"
    path.write_bytes(bytes(100 * MEBIBYTE))
    before = own_memory_bytes()
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert int(np.frombuffer(mapped, np.uint8).sum()) == 0
        assert own_memory_bytes() - before < 20 * MEBIBYTE
