"""The bytes that each device exchanges with others, counted from the text of a compiled program."""

from __future__ import annotations

from typing import Any

import hlo_cost
from hlo_cost import Computation, Instruction

from stablehlo_mem.frontend.program import ingest, kept_donated
from stablehlo_mem.targets import compile as compiling
from stablehlo_mem.targets.target import named_targets

_PASSES = {"all-gather": 1, "all-reduce": 2, "reduce-scatter": 1, "all-to-all": 1, "collective-permute": 1}
"""How often the larger of an operand and its result passes a device: a ring reduces, and gathers the sums again."""
_CONTINUED = "async_collective_fusion"
"""XLA:TPU runs a collective beside other kernels: one fusion starts it, those of this name go on with it, and one ends
it. Each has the collective in its computation."""


def exchanged_bytes(exported: Any, target: str) -> float:
    """Bytes that a device receives in one execution of a program over several, compiled for a target."""
    (named,) = named_targets(target)
    flat = compiling.flattened(exported)
    devices = named.devices(exported.nr_devices)[: exported.nr_devices]
    compiled, _ = compiling.executable(flat, kept_donated(ingest(exported)), named.platform, devices)
    return counted(compiled.as_text())


def counted(text: str) -> float:
    """The same of the text of its HLO; collectives in loops count as often as these run."""
    computations, entry = hlo_cost.parse(text)
    found = hlo_cost.instructions(computations, entry)
    return sum(times * _received(computations, block, one) for block, one, times, _ in found)


def _received(computations: dict[str, Computation], block: Computation, one: Instruction) -> float:
    """Bytes that a device receives for an instruction."""
    if one.opcode != "fusion":
        return _moved(block, one, _PASSES)
    name = one.called("calls") or ""
    inside = computations.get(name, {})
    if name.startswith(_CONTINUED) or any('"AsyncCollectiveDone"' in i.rest for i in inside.values()):
        return 0.0
    # Of sums of which a device takes its part only: they are not gathered again.
    scatters = any(i.opcode == "dynamic-slice" for i in inside.values())
    passes = {**_PASSES, "all-reduce": 1} if scatters else _PASSES
    return sum(_moved(inside, i, passes) for i in inside.values())


def _moved(block: Computation, one: Instruction, passes_of: dict[str, int]) -> float:
    passes = passes_of.get(one.opcode.removesuffix("-start"))
    if passes is None:
        return 0.0
    operands = sum(block[v].nbytes for v in one.operands if v in block)
    # The shape of an asynchronous all-gather or permutation names its operands before its results.
    results = one.nbytes - operands if one.opcode.endswith("-start") and one.nbytes > operands else one.nbytes
    return passes * max(operands, results)
