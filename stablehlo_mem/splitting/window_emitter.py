"""A step of a loop in a window around its chunk, for ops that slide over the axis. Used by `emit_loops`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stablehlo_mem.sharding_rules.chunk_emitter import ChunkEmitter
from stablehlo_mem.sharding_rules.halo import Use, Window
from stablehlo_mem.sharding_rules.op_rule import Chunk


class WindowEmitter(ChunkEmitter):
    """The same step on another part of the axis.

    Args:
        read: what the step computes, or a slice of the value, in a part of the axis.
    """

    def __init__(self, step: ChunkEmitter, chunk: Chunk, window: Window, read: Callable[[Use, ChunkEmitter], Any]):
        super().__init__(step.rules, window.n, chunk)
        self.step, self.window, self.read = step, window, read

    def whole(self, value: int) -> Any:
        """A value that does not depend on the axis."""
        return self.step.whole(value)

    def chunk_of(self, value: int, dimension: int) -> Any:
        """The window of a value along a dimension."""
        return self.read(Use(value, dimension, self.window), self)
