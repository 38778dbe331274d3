"""Which loop each split op runs in, as far as it is decided: filled by `loop_scheduling`, read by `online`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from stablehlo_mem.sharding_rules.factor_rule import SplitOp
from stablehlo_mem.sharding_rules.halo import Use


@dataclasses.dataclass
class PartialSchedule:
    """The loops of an axis while they are decided, op by op in program order.

    Attributes:
        producers: the split op that computes each use's chunk; None where it is sliced from the whole value.
        outputs: the split op of each value that a loop leaves.
        first_loop: the loop in which each split op runs first.
        ready_after: for values computed outside, how many loops must have finished before, if any.
    """

    producers: Mapping[Use, SplitOp | None]
    outputs: dict[int, SplitOp]
    first_loop: dict[SplitOp, int] = dataclasses.field(default_factory=dict[SplitOp, int])
    ready_after: dict[int, int] = dataclasses.field(default_factory=dict[int, int])

    def loops_before(self, value: int) -> int:
        """How many loops must have finished before a whole value is there."""
        return self.first_loop[self.outputs[value]] + 1 if value in self.outputs else self.ready_after.get(value, 0)
