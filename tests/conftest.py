"""The tests plan by the figures built in, whatever was measured on the machine they run on.

A compiler's report on a program is the same every time, so each process of the tests asks for it once.
The garbage collector looks at an object once: what the tests keep of JAX, programs and graphs is millions of them.
LLVM does not optimise what JAX compiles here, which runs for milliseconds: that takes half of XLA:CPU's time.
"""

from __future__ import annotations

import gc
import hashlib
import os
from collections.abc import Callable, Generator, Iterator
from typing import Any

os.environ["STABLEHLO_MEM_CALIBRATION"] = ""

import jax
import pytest
from jax.export import Exported

from stablehlo_mem.targets import compile as compiling
from stablehlo_mem.targets import target
from stablehlo_mem.targets.isolated_compile import Request
from stablehlo_mem.targets.measurement import Measured

jax.config.update("jax_disable_most_optimizations", True)

MANY = 500_000
"""Objects made since the last collection after which there is one between tests. With generations, collections took
36 of 710 CPU-seconds of the first half of the tests, most of them the five that looked at everything."""

_REPORTS: dict[str, Measured] = {}
_MEASURE_HERE, _MEASURE_ISOLATED = compiling.measure_exported, target.measure_isolated


def pytest_collection_finish() -> None:
    """What is imported by now stays."""
    gc.set_threshold(2 * MANY, *gc.get_threshold()[1:])
    gc.freeze()


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_teardown() -> Generator[None]:
    """What a test leaves behind is kept by caches: later collections need not look at it."""
    yield
    if gc.get_count()[0] > MANY:
        gc.collect()
        gc.freeze()


def _reported(key: object, measure: Callable[[], Any]) -> Any:
    """The figures of an earlier compilation; refusals and errors are not kept."""
    digest = hashlib.sha256(repr((key, os.environ.get("XLA_FLAGS"))).encode()).hexdigest()
    if digest not in _REPORTS:
        found = measure()
        if not isinstance(found, Measured):
            return found
        _REPORTS[digest] = found
    return _REPORTS[digest]


def _measure_here(exported: Exported, donated: Any, floor_bytes: int, platform: str, devices: Any) -> Any:
    signature = exported.nr_devices, exported.in_avals, exported.out_avals, exported.module_kept_var_idx
    shardings = exported.in_shardings_hlo, exported.out_shardings_hlo
    module = hashlib.sha256(exported.mlir_module_serialized).digest()
    key = module, signature, shardings, donated, floor_bytes, platform, [repr(device) for device in devices]
    return _reported(key, lambda: _MEASURE_HERE(exported, donated, floor_bytes, platform, devices))


def _measure_isolated(request: Request) -> Any:
    return _reported(request, lambda: _MEASURE_ISOLATED(request))


@pytest.fixture(scope="module", autouse=True)
def compilers_asked_once(request: pytest.FixtureRequest) -> Iterator[None]:
    """Except in the tests of how compilers are asked."""
    with pytest.MonkeyPatch.context() as patch:
        if request.path.name != "test_targets.py":
            patch.setattr(compiling, "measure_exported", _measure_here)
            patch.setattr(target, "measure_isolated", _measure_isolated)
        yield
