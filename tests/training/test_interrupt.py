from __future__ import annotations

import os
import signal
import threading

import pytest

from bertsmith.training.interrupt import StopRequest


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_noted_and_the_second_quits(number, capfd):
    before = signal.getsignal(number)
    with StopRequest(echo_seconds=0.0) as stop:
        assert not stop.requested
        os.kill(os.getpid(), number)
        assert stop.requested
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before
    assert "stopping after this step" in capfd.readouterr().err


def test_an_echo_of_the_first_signal_is_no_second_one():
    with StopRequest(echo_seconds=60.0) as stop:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGTERM)
        assert stop.requested


def test_outside_the_main_thread_nothing_is_changed():
    before = signal.getsignal(signal.SIGTERM)
    seen = []

    def enter() -> None:
        with StopRequest() as stop:
            seen.append((stop.requested, signal.getsignal(signal.SIGTERM)))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [(False, before)]
