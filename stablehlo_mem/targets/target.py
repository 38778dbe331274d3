"""Targets: a compiler and a chip, named, that can say what a program needs.

The api resolves the names that users give; the planner measures programs with `Target.measure`.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import jax

from stablehlo_mem.errors import TargetError
from stablehlo_mem.frontend.program import Program, as_exported, kept_donated
from stablehlo_mem.ir.bindings import ir
from stablehlo_mem.targets import compile as compiling
from stablehlo_mem.targets.calibration import calibrated
from stablehlo_mem.targets.chips import CHIPS, Chip
from stablehlo_mem.targets.devices import COMPILERS, local_devices, require_compiler, topology_devices
from stablehlo_mem.targets.isolated_compile import Request, measure_isolated
from stablehlo_mem.targets.measurement import Measured, Refused
from stablehlo_mem.utils.backends import start_backends

_CHIP_NAMES = {
    "NVIDIA H200": "cuda:h200",
    "NVIDIA H100": "cuda:h100",
    "NVIDIA A100": "cuda:a100",
    "TPU v5 lite": "tpu:v5e",
    "TPU v5e": "tpu:v5e",
    "TPU v6": "tpu:v6e",
    "TPU v5": "tpu:v5p",
}
"""The chip of a device by the beginning of its `device_kind`; longer beginnings come before their own beginnings."""
_PLATFORMS = {"gpu": "cuda"}
"""The platform's name in an Exported where JAX's backend has another."""
_TOPOLOGIES = (
    re.compile(r"(?P<chip>tpu:\w+):(?P<grid>[1-9]\d{0,3}(x[1-9]\d{0,3}){1,2})"),
    re.compile(r"(?P<chip>cuda:\w+)x(?P<grid>[1-9]\d{0,3})"),
)
"""A chip and how many: the grid of TPUs, as libtpu names it, or the number of GPUs of a host. JAX describes as many as
are asked for, however much memory the description takes: four digits are enough."""


@dataclasses.dataclass(frozen=True)
class Target:
    """What a program is made to fit.

    Attributes:
        name: "cpu", "cuda" or "tpu" for the devices of this machine, "tpu:v5e" and the like for a chip that need
            not be there, "tpu:v5e:2x4" and "cuda:h200x8" for a number of them.
        platform: the name by which an Exported lists it: "cpu", "cuda" or "tpu".
        chip: what the static analyses know about it.
        grid: the devices of a named topology, such as "2x4"; "" for as many as a program takes.
    """

    name: str
    platform: str
    chip: Chip
    grid: str = ""

    @property
    def places_arguments(self) -> bool:
        """Whether its compiler heeds in which memory arguments and results are said to be.

        XLA:GPU does not without a device, and XLA:CPU has one memory.
        """
        return self.platform == "tpu" or (self.platform == "cuda" and ":" not in self.name)

    def devices(self, count: int = 1) -> tuple[Any, ...]:
        """The devices to compile for: those of the topology, or `count` or more of a chip, or all of this machine's.

        Raises:
            TargetError: the compiler plugin is missing, it does not know the topology, or this machine has no such
                device.
        """
        if ":" in self.name:
            return topology_devices(self.chip, count, self.grid)
        devices = local_devices(self.platform)
        if not devices:
            raise TargetError(f"this machine has no {self.platform} device")
        # A program that is shared out over several processes is compiled for the devices of all of them.
        return tuple(devices if count <= len(devices) else jax.devices(devices[0].platform))

    def measure(self, program: Program, module: ir.Module) -> Measured | Refused:
        """Compiles a module with the program's signature for this target and reads the compiler's memory report.

        Returns:
            The figures per device; `Refused` if the compiler does not compile it.

        Raises:
            TargetError: the compiler is not installed, or the program is for other platforms or more devices.
        """
        if program.platforms and self.platform not in program.platforms:
            raise mismatch(self.name, self.platform, program)
        count = program.exported.nr_devices if program.exported is not None else 1
        if ":" in self.name:
            require_compiler(self.chip)
            if COMPILERS[self.chip.kind].is_isolated:
                exported = compiling.flattened(as_exported(program, module, self.platform)).serialize()
                return measure_isolated(Request(self.name, bytes(exported), kept_donated(program), program.floor_bytes))
        return compiling.measure(program, module, self.platform, self.devices(count))


TargetLike = str | Target | tuple[str | Target, ...] | None


def resolve_targets(target: TargetLike, program: Program) -> tuple[Target, ...]:
    """The targets a user means, for a program.

    Args:
        target: None for the default backend; "cpu", "cuda", "tpu"; a chip such as "tpu:v5e"; a topology such as
            "tpu:v5e:2x4" or "cuda:h200x8"; a `Target`; or a tuple.
        program: several platforms in one Exported need a target each.

    Raises:
        TargetError: an unknown name, or one that is not of the platforms the program is exported for.
    """
    if target is None:
        return (_default_target(program),)
    targets = named_targets(target)
    for named in targets:
        if program.platforms and named.platform not in program.platforms:
            raise mismatch(named.name, named.platform, program)
    missing = sorted(set(program.platforms) - {t.platform for t in targets})
    if missing:
        raise TargetError(
            f"the module is exported for {_listed(program.platforms)}: give a target for {_listed(missing)} too, "
            f"several targets at once, as {', '.join([t.name for t in targets] + missing)}"
        )
    return targets


def named_targets(target: TargetLike) -> tuple[Target, ...]:
    """The targets a user means, before there is a program.

    Raises:
        TargetError: an unknown name.
    """
    named = target if isinstance(target, tuple) else (local_platform() if target is None else target,)
    if not named:
        raise TargetError(f"no target given: {_known()}")
    return tuple(t if isinstance(t, Target) else _named_target(t) for t in named)


def local_platform() -> str:
    """The default backend by the name an Exported would list it: "cpu", "cuda", "tpu"."""
    start_backends()
    backend = jax.default_backend()
    return _PLATFORMS.get(backend, backend)


def mismatch(name: str, platform: str, program: Program) -> TargetError:
    """The error for a target the program is not exported for."""
    what = f"target {name}" if name == platform else f"target {name} ({platform})"
    return TargetError(
        f"{what} does not suit a module exported for {_listed(program.platforms)}: name a target of these platforms, "
        f"or export with platforms={[platform]!r}"
    )


def _default_target(program: Program) -> Target:
    platform = local_platform()
    if program.platforms and platform not in program.platforms:
        raise mismatch("None, the default backend", platform, program)
    if len(program.platforms) > 1:
        raise TargetError(
            f"the module is exported for {_listed(program.platforms)}: name one target each, "
            f"several at once, as {', '.join(program.platforms)}"
        )
    return _named_target(platform)


def _named_target(name: Any) -> Target:
    if not isinstance(name, str):
        raise TargetError(f"a target is a name or a stablehlo_mem.Target, not {name!r}: {_known()}")
    name = _PLATFORMS.get(name, name)
    if name in CHIPS:
        chip = CHIPS[name] if ":" in name else calibrated(CHIPS[name], name)
        return Target(name, chip.kind, chip)
    topology = next(filter(None, (pattern.fullmatch(name) for pattern in _TOPOLOGIES)), None)
    if topology is not None and topology["chip"] in CHIPS:
        chip = CHIPS[topology["chip"]]
        return Target(name, chip.kind, chip, topology["grid"])
    first = next((c for c in CHIPS.values() if c.kind == name), None)
    if first is None:
        raise TargetError(f"unknown target {name!r}: {_known()}")
    devices = local_devices(name)
    return Target(name, name, _chip_of(devices[0], first)) if devices else Target(first.name, first.kind, first)


def _chip_of(device: Any, fallback: Chip) -> Chip:
    beginning = next((b for b in _CHIP_NAMES if device.device_kind.startswith(b)), None)
    chip = CHIPS[_CHIP_NAMES[beginning]] if beginning is not None else fallback
    stats = device.memory_stats() or {}
    chip = dataclasses.replace(chip, memory_bytes=stats.get("bytes_limit", chip.memory_bytes))
    return calibrated(chip, device.device_kind)


def _known() -> str:
    names = ", ".join((*COMPILERS, *(name for name in CHIPS if ":" in name)))
    return f"known are {names}, and several as in cuda:h200x8 and tpu:v5e:2x4"


def _listed(names: Any) -> str:
    return ", ".join(names)


def platforms_of(targets: tuple[Target, ...]) -> tuple[str, ...]:
    """The platforms of targets, each once, in order."""
    return tuple(dict.fromkeys(t.platform for t in targets))
