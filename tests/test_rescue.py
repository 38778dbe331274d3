"""`rescue`: plain until memory runs out, planned from then on. And what is said when it runs out."""

from __future__ import annotations

import logging
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stablehlo_mem as shm
from stablehlo_mem.planner import budget_loop, shares

PROGRAM = pathlib.Path(__file__).parent / "programs" / "rescued.py"
X = jnp.linspace(0, 1, 512)


def spread(x: jax.Array) -> jax.Array:
    """1 MiB of products, sorted."""
    return jnp.sort(x[:, None] * x[None], axis=1)[:, :4].sum(1)


def run(mode: str) -> list[str]:
    """What `PROGRAM` prints, log included."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), mode],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
        env={"PYTHONPATH": str(PROGRAM.parents[2]), "JAX_PLATFORMS": "cpu", "PATH": ""},
    )
    return [line for line in (done.stderr + done.stdout).splitlines() if line]


@pytest.mark.skipif(sys.platform != "linux", reason="the address space is limited as on Linux")
def test_what_runs_out_of_memory_is_planned_and_called_again():
    assert any("RESOURCE_EXHAUSTED" in line for line in run("plain"))  # the original does not fit
    assert run("rescue")[-2:] == ["nearest ran out of memory; it is planned and called again", "result (16384,)"]


@pytest.mark.skipif(sys.platform != "linux", reason="the address space is limited as on Linux")
def test_what_was_donated_cannot_be_used_again():
    first, *notes = run("donated")[-4:]
    assert "RESOURCE_EXHAUSTED" in first
    assert notes[0] == "stablehlo_mem: nearest ran out of memory"
    assert "are free now" in notes[1]
    assert notes[2] == "  the arguments that were donated to it are gone: use stablehlo_mem.jit at once"


@pytest.fixture
def no_planning(monkeypatch):
    def planned(*_, **__):
        raise AssertionError("planned")

    monkeypatch.setattr(budget_loop, "keep_budget", planned)


@pytest.fixture
def out_of_memory(monkeypatch):
    """Makes plain calls fail as XLA does."""

    def fail(rescued, message="RESOURCE_EXHAUSTED: Out of memory allocating 1 bytes."):
        class Failing:
            def __call__(self, *_, **__):
                raise jax.errors.JaxRuntimeError(message)

        monkeypatch.setattr(rescued, "plain", Failing())
        return rescued

    return fail


@pytest.mark.usefixtures("no_planning")
def test_what_fits_is_not_planned():
    np.testing.assert_array_equal(shm.rescue(spread, "100KiB")(X), jax.jit(spread)(X))


@pytest.mark.usefixtures("no_planning")
def test_inside_transformations_it_is_jit():
    rescued = shm.rescue(spread, "100KiB")
    total = lambda x: rescued(x).sum()  # noqa: E731
    np.testing.assert_array_equal(jax.grad(total)(X), jax.grad(lambda x: jax.jit(spread)(x).sum())(X))
    np.testing.assert_array_equal(jax.vmap(rescued)(X[None]), jax.vmap(jax.jit(spread))(X[None]))


@pytest.mark.parametrize("message", ["RESOURCE_EXHAUSTED: Out of memory", "INTERNAL: YNNPACK operation failed: error"])
def test_after_it_ran_out_of_memory_it_is_planned(message, out_of_memory, caplog):
    rescued = out_of_memory(shm.rescue(spread, "100KiB"), message)
    assert rescued.plan(X).before.peak_bytes > 100 * 1024  # over the budget
    assert rescued.plan(X).steps
    with caplog.at_level(logging.WARNING, logger="stablehlo_mem"):
        for _ in range(2):
            np.testing.assert_array_equal(rescued(X), jax.jit(spread)(X))
    assert caplog.messages == ["spread ran out of memory; it is planned and called again"]


def test_an_error_that_is_not_about_memory_passes_unchanged(out_of_memory):
    rescued = out_of_memory(shm.rescue(spread, "100KiB"), "INTERNAL: something else")
    with pytest.raises(jax.errors.JaxRuntimeError, match="something else") as caught:
        rescued(X)
    assert not hasattr(caught.value, "__notes__")


def test_a_budget_that_cannot_be_kept_is_a_budget_error(out_of_memory):
    with pytest.raises(shm.BudgetError):
        out_of_memory(shm.rescue(spread, "1KiB"))(X)


def test_memory_that_runs_out_within_the_budget_is_explained(out_of_memory, monkeypatch):
    rescued = out_of_memory(shm.rescue(spread, "100KiB"))
    monkeypatch.setattr(rescued, "planned", rescued.plain)
    with pytest.raises(jax.errors.JaxRuntimeError) as caught:
        rescued(X)
    first, second, third = caught.value.__notes__
    assert first == "stablehlo_mem: spread ran out of memory within its budget"
    assert second.startswith("  of the ")
    assert third == '  give a smaller budget, as "80% of device", or delete arrays it does not need'


def test_it_is_a_decorator_and_takes_methods_and_what_jit_takes():
    class Model:
        scale = 2.0

        @shm.rescue(budget="1GiB", static_argnums=0)
        def apply(self, x):
            """Scales."""
            return self.scale * x

    assert Model.apply.__doc__ == "Scales."
    np.testing.assert_array_equal(Model().apply(X), 2 * X)
    with pytest.raises(shm.InputError, match="cannot read the budget"):
        shm.rescue(spread, "much")


def test_a_budget_that_the_device_has_not_is_said_when_it_is_planned(monkeypatch, caplog):
    monkeypatch.setattr(shares, "device_memory", lambda _: (2**20, 2**10))
    jitted = shm.jit(lambda x: spread(x) + 1, "3MiB")
    with caplog.at_level(logging.WARNING, logger="stablehlo_mem"):
        jitted(X)
    (message,) = caplog.messages
    assert message.endswith("and cpu has 3 KiB free for it: give the budget 'device', or free memory")
