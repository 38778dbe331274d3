"""Puts the dimensions of dots in the order batch, rows, contraction; for compilers that fail at others.

Before:
    %d = stablehlo.dot_general %x, %y, contracting_dims = [0] x [0]
        : (tensor<64x16xbf16>, tensor<64x2x4xbf16>) -> tensor<16x2x4xf32>
After:
    %y1 = stablehlo.reshape %y : tensor<64x8xbf16>
    %d1 = stablehlo.dot_general %x, %y1, contracting_dims = [0] x [0] : ... -> tensor<16x8xf32>
    %d = stablehlo.reshape %d1 : tensor<16x2x4xf32>

XLA:CPU gives dots of bf16 whose results are f32 to YNNPACK if it knows their order. Its `DotDecomposer` makes that
order of any other, but only after the operands of what YNNPACK does not know were converted to f32. If it leaves such
an operand as it was, nothing can run the dot (docs/xla_bugs.md). The transposes are those that it would make itself.
The planner calls this on a finished program.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from stablehlo_mem.ir import builders
from stablehlo_mem.ir.bindings import ir, stablehlo, walk_operations
from stablehlo_mem.ir.op_attributes import DotNumbers

_KEPT = ("algorithm", "precision_config")
"""Attributes of a dot that do not name its dimensions."""


def order_dots(module: ir.Module, dtypes: AbstractSet[str]) -> None:
    """Orders the dots with operands of these element types and a result of another one, in place.

    Args:
        dtypes: as MLIR names them, such as "bf16".
    """
    for op in list(walk_operations(module.operation)) if dtypes else ():
        if op.name == "stablehlo.dot_general":
            left, right, result = (str(value.type.element_type) for value in (*op.operands, *op.results))
            if left == right != result and left in dtypes:
                _rewrite(op)


def _rewrite(op: Any) -> None:
    numbers = DotNumbers.of(op.attributes["dot_dimension_numbers"])
    left = _Operand(op.operands[0], numbers.lhs_batching_dimensions, numbers.lhs_contracting_dimensions)
    right = _Operand(op.operands[1], numbers.rhs_batching_dimensions, numbers.rhs_contracting_dimensions)
    if left.is_ordered() and right.is_ordered():
        return
    result = op.results[0]
    with builders.building(op, op.location):
        batch, count = left.batch_sizes(), len(left.batch)
        first, second = ([count if operand.sums_first() else count + 1] for operand in (left, right))
        order = stablehlo.DotDimensionNumbers.get([*range(count)], [*range(count)], first, second)
        attributes = {name: op.attributes[name] for name in _KEPT if name in op.attributes}
        attributes["dot_dimension_numbers"] = order
        result_type = builders.retype(result.type, [*batch, left.size(left.rows()), right.size(right.rows())])
        dot = ir.Operation.create(op.name, [result_type], [left.ordered(), right.ordered()], attributes).result
        result.replace_all_uses_with(builders.reshaped(dot, result.type.shape))
    op.erase()


@dataclasses.dataclass(frozen=True)
class _Operand:
    """An operand of a dot: its batch and contracted dimensions; the others are rows."""

    value: Any
    batch: Sequence[int]
    summed: Sequence[int]

    def rows(self) -> list[int]:
        return [d for d in range(len(self.value.type.shape)) if d not in (*self.batch, *self.summed)]

    def sums_first(self) -> bool:
        """Whether contracted dimensions are before rows."""
        return min(self.summed, default=0) < min(self.rows(), default=0)

    def is_ordered(self) -> bool:
        """Whether the batch is in front of one dimension of rows and one that is contracted, in either order."""
        return list(self.batch) == list(range(len(self.batch))) and len(self.rows()) == len(self.summed) == 1

    def size(self, dimensions: Sequence[int]) -> int:
        return math.prod(self.value.type.shape[d] for d in dimensions)

    def batch_sizes(self) -> list[int]:
        return [self.value.type.shape[d] for d in self.batch]

    def ordered(self) -> Any:
        """The operand with the batch in front, then one dimension of rows and one that is contracted."""
        matrix = (self.summed, self.rows()) if self.sums_first() else (self.rows(), self.summed)
        value = builders.transposed(self.value, [*self.batch, *matrix[0], *matrix[1]])
        return builders.reshaped(value, [*self.batch_sizes(), *map(self.size, matrix)])
