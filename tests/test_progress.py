"""What a user sees who waits: progress on terminals and in the log, and no noise from compilers."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Generator

import jax
import jax.export
import jax.numpy as jnp
import pytest

import stablehlo_mem as shm
from stablehlo_mem.utils.progress import shown, tell
from stablehlo_mem.utils.quiet import quiet

BUDGET = "2MiB"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def wait(self) -> None:
        """Waits for something to be written."""
        while not self.getvalue():
            time.sleep(0.01)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    return Terminal()


@contextlib.contextmanager
def watched(terminal: Terminal, first: str, delay_seconds: float = 0) -> Generator[None]:
    """`shown` where standard error is a terminal."""
    with contextlib.redirect_stderr(terminal), shown(first, delay_seconds):
        yield


def distances() -> jax.export.Exported:
    """4 MiB of distances."""
    spec = jax.ShapeDtypeStruct((1024, 8), jnp.float32)
    nearest = lambda x, q: ((x[None] - q[:, None]) ** 2).sum(-1).min(1)  # noqa: E731
    return jax.export.export(jax.jit(nearest), platforms=["cpu"])(spec, spec)


def test_the_log_says_what_planning_is_at(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="stablehlo_mem"):
        plan = shm.plan(distances(), BUDGET, target="cpu", options=shm.Options(cache=False))
    assert plan.fits
    assert plan.steps
    assert caplog.messages[0] == "compile 1, for cpu"
    assert any(message.startswith("search for ") for message in caplog.messages)


def test_a_terminal_shows_it_with_the_time(terminal: Terminal) -> None:
    with watched(terminal, "read"):
        tell("compile 1, for cpu")
        terminal.wait()
    assert "compile 1, for cpu" in terminal.getvalue()
    assert "0:00:0" in terminal.getvalue()


def test_what_is_quick_shows_nothing(terminal: Terminal) -> None:
    with watched(terminal, "read", delay_seconds=60):
        tell("compile 1, for cpu")
    assert terminal.getvalue() == ""


def test_what_is_no_terminal_shows_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with shown("read", delay_seconds=0):
        tell("compile 1, for cpu")
    assert capfd.readouterr() == ("", "")


def test_progress_can_be_turned_off_and_on(terminal: Terminal) -> None:
    shm.progress(False)
    try:
        with watched(terminal, "read"):
            tell("compile 1, for cpu")
        assert terminal.getvalue() == ""
    finally:
        shm.progress(True)
    with watched(terminal, "read"):
        tell("compile 2, for cpu")
        terminal.wait()
    assert "compile 2" in terminal.getvalue()


def test_progress_takes_no_words() -> None:
    with pytest.raises(shm.InputError, match="progress is True or False, not 'off'"):
        shm.progress("off")  # pyright: ignore[reportArgumentType]


def test_only_the_outer_one_of_two_is_shown(terminal: Terminal) -> None:
    with watched(terminal, "outer"), shown("inner", delay_seconds=0):
        tell("compile 1, for cpu")
        terminal.wait()
    assert "outer" in terminal.getvalue() or "compile 1" in terminal.getvalue()
    assert "inner" not in terminal.getvalue()


def test_an_error_ends_the_display(terminal: Terminal) -> None:
    with pytest.raises(ValueError, match="of the work"), watched(terminal, "read"):
        raise ValueError("of the work")
    with watched(terminal, "again"):
        tell("compile 2, for cpu")
        terminal.wait()
    assert "compile 2" in terminal.getvalue()


def test_noise_is_dropped_and_the_rest_is_not(capfd: pytest.CaptureFixture[str]) -> None:
    with quiet():
        os.write(2, b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n")
        os.write(2, b"I0000 00:00:1.5 7 cudart_stub.cc:31] Could not find cuda drivers on your machine, no GPU.\n")
        os.write(2, b"E0000 00:00:1.5 7 other.cc:1] a real error\nwithout an end")
    assert capfd.readouterr().err == "E0000 00:00:1.5 7 other.cc:1] a real error\nwithout an end"


def test_what_is_written_before_an_error_is_not_lost(capfd: pytest.CaptureFixture[str]) -> None:
    def failing() -> None:
        with quiet():
            os.write(2, b"the reason\n")
            raise ValueError("in the block")

    with pytest.raises(ValueError, match="in the block"):
        failing()
    assert capfd.readouterr().err == "the reason\n"


@pytest.mark.skipif(importlib.util.find_spec("jax_plugins.xla_cuda12") is None, reason="no CUDA plugin")
@pytest.mark.skipif(os.path.exists("/dev/nvidiactl"), reason="there is a GPU to speak of")
def test_a_plan_for_chips_that_are_not_there_is_silent() -> None:
    environment = {k: v for k, v in os.environ.items() if k not in ("JAX_PLATFORMS", "TF_CPP_MIN_LOG_LEVEL")}
    program = (
        "import stablehlo_mem as shm, jax, jax.numpy as jnp\n"
        "spec = jax.ShapeDtypeStruct((64, 64), jnp.float32)\n"
        "for target in ('cuda:h200', 'tpu:v5e', 'cpu'):\n"
        "    print(shm.profile(lambda x: jnp.tanh(x @ x), spec, target=target).peak_bytes)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment, timeout=300
    )
    assert len(done.stdout.split()) == 3
    assert done.stderr == ""


def test_threads_that_are_quiet_at_once_leave_standard_error_in_place(capfd: pytest.CaptureFixture[str]) -> None:
    def work(number: int) -> None:
        for _ in range(20):
            with quiet():
                os.write(2, f"line of {number}\n".encode())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os.write(2, b"the end\n")
    lines = capfd.readouterr().err.splitlines()
    assert lines[-1] == "the end"
    assert sorted(lines[:-1]) == sorted(f"line of {number}" for number in range(4) for _ in range(20))
