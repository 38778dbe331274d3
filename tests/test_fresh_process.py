"""Fresh processes: what they report of programs whose needs are known."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

from stablehlo_mem.targets import _fresh_worker as worker
from stablehlo_mem.targets.fresh_process import FreshRunError, run_fresh

MIB = 2**20


def serialised(function: Callable[..., object], *shapes: tuple[int, ...], dtype: object = jnp.float32) -> bytes:
    specs = [jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]
    return bytes(jax.export.export(jax.jit(function), platforms=["cpu"])(*specs).serialize())


def test_outputs_arguments_and_times_come_back() -> None:
    given = np.arange(6, dtype=np.float32).reshape(2, 3)
    run = run_fresh(serialised(lambda x: (x + 1, x.sum()), (2, 3)), arguments=[given], repeats=3, keep_outputs=True)
    np.testing.assert_array_equal(run.outputs[0], given + 1)
    assert run.outputs[1].shape == ()
    assert len(run.seconds) == 3
    assert (run.argument_bytes, run.output_bytes) == (24, 28)


def test_equal_seeds_give_bitwise_equal_runs() -> None:
    program = serialised(jnp.sin, (100,))
    digests = [run_fresh(program, seed=seed).digest for seed in (1, 1, 2)]
    assert digests[0] == digests[1] != digests[2]


def test_types_numpy_does_not_know_come_back() -> None:
    run = run_fresh(serialised(lambda x: x, (4,), dtype=jnp.bfloat16), keep_outputs=True)
    assert run.outputs[0].dtype == jnp.bfloat16


def test_growth_is_that_of_the_buffers() -> None:
    """Executing adds the output of 64 MiB and some scratch; the argument of 64 MiB was there before."""
    run = run_fresh(serialised(jnp.cumsum, (16 * MIB,)))
    assert 64 * MIB <= run.grown_bytes <= 3 * 64 * MIB
    assert run.resident_before_bytes >= run.argument_bytes == 64 * MIB


def test_the_high_water_mark_of_the_past_is_not_counted() -> None:
    meter = worker.PeakMemory()
    past = np.ones(64 * MIB, np.uint8)
    del past
    meter.start()
    now = np.ones(16 * MIB, np.uint8)
    grown = meter.stop() - meter.before_bytes
    assert now.nbytes <= grown + MIB
    assert grown < 40 * MIB


def test_without_a_resettable_mark_a_thread_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "reset_high_water_mark", lambda: False)
    meter = worker.PeakMemory()
    meter.start()
    now = np.ones(32 * MIB, np.uint8)
    while meter._sampled == 0:
        os.sched_yield()
    assert not meter.exact
    assert meter.stop() - meter.before_bytes >= now.nbytes - 2 * MIB


def test_the_worker_imports_nothing_of_ours() -> None:
    text = pathlib.Path(worker.__file__).read_text()
    assert "import stablehlo_mem" not in text
    assert "from stablehlo_mem" not in text


def test_a_program_that_cannot_have_its_memory_says_so() -> None:
    huge = serialised(lambda x: jnp.broadcast_to(x, (2**20, 2**22)), (2**22,))
    with pytest.raises(FreshRunError) as error:
        run_fresh(huge)
    assert error.value.memory


def test_bytes_that_are_no_program_are_an_error() -> None:
    with pytest.raises(FreshRunError, match="failed") as error:
        run_fresh(b"not a program")
    assert not error.value.memory
