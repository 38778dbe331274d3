"""Inlines a module that JAX lowered, such as the call of a kernel, at the insertion point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stablehlo_mem.frontend.canonicalize import open_functions
from stablehlo_mem.ir.bindings import inlined_func_call, ir, parse_module
from stablehlo_mem.ir.graph import main_function


def inlined(text: str, operands: Sequence[Any]) -> list[Any]:
    """The results of a module's `main` for operands of its types.

    Args:
        text: the module; calls in it are inlined too.
    """
    context: Any = ir.Context.current
    module = parse_module(text, context)
    open_functions(module)
    return list(inlined_func_call(main_function(module).operation, list(operands)))
