"""The compilers by kind of chip, and the devices they compile for: this machine's, or those of a topology.

A topology is what a compiler knows about devices that need not be attached. `Target.devices` is the main caller.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import importlib.util
import math
import os
from collections.abc import Callable, Generator
from typing import Any

import jax
from jax.experimental import topologies

from stablehlo_mem.errors import TargetError
from stablehlo_mem.targets.chips import Chip, Kind
from stablehlo_mem.targets.gpu_configs import target_config
from stablehlo_mem.utils.backends import start_backends
from stablehlo_mem.utils.quiet import quiet

_GRIDS: dict[str, tuple[str, ...]] = {
    "tpu:v5e": ("2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16"),
    "tpu:v6e": ("2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16"),
    "tpu:v5p": ("2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4"),
}
"""Topologies of each TPU by the names libtpu knows, the smaller ones first."""
_TPU_ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
}
"""For libtpu where no TPU is attached: it does not look for one over the network, allows other processes with libtpu,
and does not complain that the machine is no TPU host. The accelerator type does not change the topology."""
_CUDA_PLUGINS = ("jax_plugins.xla_cuda13", "jax_plugins.xla_cuda12")
"""The modules that bring XLA:GPU, the preferred one first."""


@dataclasses.dataclass(frozen=True)
class Compiler:
    """How this machine gets at the compiler for chips of a kind.

    Attributes:
        modules: Python modules, one of which brings the compiler. The extra of this package that installs one is named
            after the kind.
        describe: a topology of at least so many devices of a chip, or of a grid if one is named; None if it compiles
            only for attached devices.
        is_isolated: whether it runs in a process of its own for a topology, because it may end the process it is in.
    """

    modules: tuple[str, ...]
    describe: Callable[[Chip, int, str], tuple[Any, ...]] | None = None
    is_isolated: bool = False


def local_devices(platform: str) -> list[Any]:
    """This process's devices of a platform, [] if there are none."""
    start_backends()
    try:
        return list(jax.local_devices(backend=platform))
    except RuntimeError:  # JAX's error for a backend that is unknown or failed to start
        return []


@functools.cache
def topology_devices(chip: Chip, count: int, grid: str = "") -> tuple[Any, ...]:
    """At least `count` devices of a chip to compile for, those of a grid if it is named; none need be attached.

    Raises:
        TargetError: the compiler plugin is not installed or cannot describe so many devices or such a grid.
    """
    require_compiler(chip)
    describe = COMPILERS[chip.kind].describe
    if describe is None:
        raise TargetError(f"{chip.name} must be attached: the {chip.kind} compiler does not describe devices")
    return describe(chip, count, grid)


def require_compiler(chip: Chip) -> None:
    """Raises a TargetError unless the compiler for a chip is known and installed."""
    if chip.kind not in COMPILERS:
        raise TargetError(f"{chip.name} is of an unknown kind {chip.kind!r}: known are {', '.join(COMPILERS)}")
    if not is_installed(chip.kind):
        raise TargetError(
            f"compiling for {chip.name} needs the {chip.kind.upper()} compiler plugin, which is not installed: "
            f"pip install stablehlo-mem[{chip.kind}]"
        )


def is_installed(kind: Kind) -> bool:
    """Whether the compiler for chips of a kind is installed."""
    return any(map(_is_importable, COMPILERS[kind].modules))


def _is_importable(module: str) -> bool:
    """Whether a module, possibly in a package, can be imported."""
    parent = module.partition(".")[0]
    return importlib.util.find_spec(parent) is not None and importlib.util.find_spec(module) is not None


def _tpu_topology(chip: Chip, count: int, grid: str) -> tuple[Any, ...]:
    named = grid or next((g for g in _GRIDS[chip.name] if _size(g) >= count), None)
    if named is None:
        raise TargetError(f"{chip.name} is known in grids of up to {_size(_GRIDS[chip.name][-1])} chips, not {count}")
    local_devices("tpu")  # attached ones start first, in the user's own environment
    with _environment(_TPU_ENVIRONMENT):
        name = f"{chip.name.removeprefix('tpu:')}:{named}"
        try:
            return tuple(topologies.get_topology_desc(platform="tpu", topology_name=name).devices)
        except jax.errors.JaxRuntimeError as error:
            known = ", ".join(_GRIDS[chip.name])
            raise TargetError(f"the compiler knows no {chip.name} in a grid of {named}: it knows {known}") from error


def _cuda_topology(chip: Chip, count: int, grid: str) -> tuple[Any, ...]:
    shape = f"1x1x{grid or count}"
    describe = functools.partial(
        topologies.get_topology_desc,
        platform="cuda",
        topology_name=shape,
        topology=shape,
        target_config=target_config(chip.name),
    )
    start_backends()
    with quiet():
        try:
            return tuple(describe().devices)
        except NotImplementedError:  # the plugin did not register itself: it found no CUDA libraries
            _register_cuda_plugin()
            return tuple(describe().devices)


def _register_cuda_plugin() -> None:
    """Registers the plugin as a compiler only: JAX has started its backends and never tries the plugin as one."""
    plugin = next(p for p in _CUDA_PLUGINS if _is_importable(p))
    with _environment({"JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1"}):
        importlib.import_module(plugin).initialize()


def _size(grid: str) -> int:
    return math.prod(map(int, grid.split("x")))


@contextlib.contextmanager
def _environment(wanted: dict[str, str]) -> Generator[None]:
    """Sets the variables that the user has not set, until the block ends."""
    added = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


COMPILERS: dict[Kind, Compiler] = {
    "cpu": Compiler(("jaxlib",)),
    "cuda": Compiler(_CUDA_PLUGINS, _cuda_topology),
    "tpu": Compiler(("libtpu",), _tpu_topology, is_isolated=True),
}
"""The compilers by kind of chip. What each of them does to a program is in `analysis.compilers`."""
