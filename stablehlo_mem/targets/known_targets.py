"""All targets by name, and which of them this machine can compile for: what `stablehlo-mem targets` lists."""

from __future__ import annotations

import dataclasses

from stablehlo_mem.targets.chips import CHIPS, Chip
from stablehlo_mem.targets.devices import COMPILERS, is_installed, local_devices
from stablehlo_mem.targets.target import named_targets


@dataclasses.dataclass(frozen=True)
class KnownTarget:
    """A target by its name.

    Attributes:
        chip: what the static analyses know about it; its name is the target's.
        attached: how many devices of this chip this machine has.
        compiles: whether this machine can compile for it, attached or not.
        missing: what to install where it cannot, "" where it can.
    """

    chip: Chip
    attached: int
    compiles: bool
    missing: str


def known_targets() -> tuple[KnownTarget, ...]:
    """All targets, in the order of `CHIPS`. Starts the devices of this machine."""
    compiles = {kind: is_installed(kind) for kind in COMPILERS}
    counts = {kind: len(local_devices(kind)) for kind in COMPILERS}
    attached = {named_targets(kind)[0].chip.name: count for kind, count in counts.items() if count}
    return tuple(
        KnownTarget(
            chip=chip,
            attached=attached.get(chip.name, 0),
            compiles=compiles[chip.kind],
            missing="" if compiles[chip.kind] else f"pip install stablehlo-mem[{chip.kind}]",
        )
        for chip in CHIPS.values()
    )
