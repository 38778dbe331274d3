"""Rows of narrow types that lie together in the memory of a TPU: it copies them to and from its host together.

Elsewhere rows may be copied one by one; that small slices are copied in groups costs nothing worth a case of its own.
"""

from __future__ import annotations

from typing import Any

from stablehlo_mem.ir.graph import dtype_bytes, tensor_type

_PACK_BYTES = 4
"""libtpu 0.0.42: "Sublane slicing size must be multiple of element packing factor", of which 32 bits hold as many."""


def packed_rows(mlir_type: Any) -> int:
    """How many rows of a matrix, or of each matrix of an array, lie together."""
    shape, dtype, _ = tensor_type(mlir_type)
    return max(1, int(_PACK_BYTES / dtype_bytes(dtype))) if len(shape) > 1 else 1


def cuts_packed_rows(op: Any) -> bool:
    """Whether a slice, or an update, takes rows apart that lie together."""
    is_update = op.name == "stablehlo.dynamic_update_slice"
    whole, part = op.operands[0].type, (op.operands[1] if is_update else op.results[0]).type
    if len(part.shape) < 2 or part.shape[-2] == whole.shape[-2]:
        return False
    return part.shape[-2] % packed_rows(whole) != 0
