"""The static memory profile: live ranges of the values a target materialises. Compiles nothing."""

from __future__ import annotations

import dataclasses

from stablehlo_mem.ir.graph import Graph
from stablehlo_mem.targets.chips import Chip

Path = tuple[tuple[int, int], ...]
"""From a function's block to a nested one: (op index, block index) at each level; () is the function's block."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    """What a target's compiler reports for one executable, in bytes."""

    argument_bytes: int
    output_bytes: int
    temp_bytes: int
    alias_bytes: int
    constant_bytes: int

    @property
    def peak_bytes(self) -> int:
        """Arguments + outputs + temporaries + embedded constants − aliased."""
        return self.argument_bytes + self.output_bytes + self.temp_bytes + self.constant_bytes - self.alias_bytes


@dataclasses.dataclass(frozen=True)
class Refused:
    """The compiler did not compile: its message, and the bytes it says the program needs (None: another error)."""

    message: str
    needed_bytes: int | None


@dataclasses.dataclass(frozen=True)
class Live:
    """A value with a buffer of its own: where it is defined and its bytes as the target lays it out."""

    path: Path
    value: int
    nbytes: int


@dataclasses.dataclass(frozen=True)
class Peak:
    """The point of highest memory: the op `op` of the block at `path`, and the temporaries live there, largest first.

    `live` leaves out arguments and outputs; `temp_bytes` is what the target's compiler would report as temporaries.
    """

    temp_bytes: int
    path: Path
    op: int
    live: tuple[Live, ...]


@dataclasses.dataclass(frozen=True)
class LiveValue:
    """A value live at the peak, for people: e.g. ("dot_general", "f32", (8, 16384, 16384), bytes, "attn.py:12 (…)")."""

    op_name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    source: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class MemoryProfile:
    """The memory of one execution, in bytes: static estimates, and the compiler's own figures where it was asked.

    Attributes:
        live: the values live at the peak, largest first.
        point: the op at the peak and the user's source line.
        measured: the compiler's figures, `Refused`, or None if it was not asked.
    """

    argument_bytes: int
    output_bytes: int
    temp_bytes: int
    alias_bytes: int
    constant_bytes: int
    live: tuple[LiveValue, ...]
    point: str
    measured: Measured | Refused | None = None

    @property
    def peak_bytes(self) -> int:
        """The compiler's figure where there is one, else arguments + outputs + temporaries + constants − aliased."""
        if isinstance(self.measured, Measured):
            return self.measured.peak_bytes
        if isinstance(self.measured, Refused) and self.measured.needed_bytes is not None:
            return self.measured.needed_bytes
        return self.argument_bytes + self.output_bytes + self.temp_bytes + self.constant_bytes - self.alias_bytes


def find_peak(graph: Graph, chip: Chip) -> Peak:
    """The peak of a function's block on a chip."""
    raise NotImplementedError(graph, chip)
