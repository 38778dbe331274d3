"""Refusals in the user's terms: of a rewritten program they speak of loops and slices that the planner wrote.

`budget_loop` passes through here what a plan that misses its budget says. An op counts as the user's if the original
program has one of its name at its source line. Of a loop of the planner's, what stands in the way is the op in it; what
only the planner's own ops say is left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from stablehlo_mem.ir.bindings import primitive_name
from stablehlo_mem.ir.graph import Graph, blocks_of
from stablehlo_mem.pass_api.candidate import Refusal

_IN_THE_WAY = " stands in the way: "
_INSIDE = "in it "
_Place = tuple[str, str]
"""The name and the source line of an op."""


def in_users_terms(refusals: Iterable[Refusal], original: Graph) -> tuple[Refusal, ...]:
    """The refusals that name the original program's ops, largest value first; all of them if none does.

    Before: "stablehlo.while stands in the way: in it stablehlo.fft model.py:8: it needs the whole dimension"
    After: "stablehlo.fft stands in the way: it needs the whole dimension", at model.py:8
    """
    refusals = tuple(refusals)
    places, values = set(_places(original)), set(_values(original))
    types = {_type(value) for value in values}
    # That a loop as a whole is not computed again tells the user nothing about a loop of the planner's.
    about = (r for r in refusals if r.dimension >= 0 or not _is_ours(r, values))
    told = (_told(refusal, places) for refusal in about)
    kept = [_named(refusal, values) for refusal in told if refusal is not None]
    # Slices are named only where they are larger than all that the user's program has and something is said of.
    largest = max((refusal.nbytes for refusal in kept if _type(refusal.value) in types), default=0)
    named = [refusal for refusal in kept if _type(refusal.value) in types or refusal.nbytes > largest]
    return tuple(dict.fromkeys(named)) or refusals


def _places(graph: Graph) -> Iterator[_Place]:
    """The ops of a program, those in its blocks included."""
    return ((op.name, block.source(op.index)) for block in blocks_of(graph) for op in block.ops)


def _values(graph: Graph) -> Iterator[str]:
    """The values of a program, as refusals describe them."""
    for block in blocks_of(graph):
        for op in block.ops:
            yield from (f"{block.title(op.index)} {block.values[v]}" for v in op.results)


def _type(value: str) -> str:
    """The type in how a value reads: "f32[64]" in "sort f32[64]"."""
    return value.rpartition(" ")[2]


def _told(refusal: Refusal, places: set[_Place]) -> Refusal | None:
    """A refusal without the planner's loops around what stands in the way; None if that is an op of the planner's."""
    name, separator, rest = refusal.message.partition(_IN_THE_WAY)
    if not separator:
        return refusal
    chain = [(name, refusal.location)]
    while rest.startswith(_INSIDE):
        inner, rest = _split_inside(rest)
        chain.append(inner)
    if chain[-1] not in places:
        return None
    (name, location), *inside = [place for place in chain if place in places]
    where = "".join(f"{_INSIDE}{inner} {line}: " for inner, line in inside)
    return dataclasses.replace(refusal, message=f"{name}{_IN_THE_WAY}{where}{rest}", location=location)


def _split_inside(text: str) -> tuple[_Place, str]:
    """The op of "in it NAME LINE: REASON", and the reason, which may be of an op in that one's blocks."""
    head, separator, reason = text.partition(f": {_INSIDE}")
    if separator:
        reason = _INSIDE + reason
    else:
        head, _, reason = text.rpartition(": ")
    name, _, line = head.removeprefix(_INSIDE).partition(" ")
    return (name, line), reason


def _is_ours(refusal: Refusal, values: set[str]) -> bool:
    """Whether a refusal is about what a loop of the planner's leaves."""
    return refusal.value.startswith("while ") and refusal.value not in values


def _named(refusal: Refusal, values: set[str]) -> Refusal:
    """A refusal with the name of the user's op where the planner's loop makes the value."""
    if not _is_ours(refusal, values):
        return refusal
    kind = refusal.value.removeprefix("while ")
    return dataclasses.replace(refusal, value=f"{primitive_name(refusal.location)} {kind}".strip())
