"""What passes and planner exchange: goals, candidates, steps and refusals, frozen so that they can be cached.

Every pass makes candidates and refusals; the planner reads them. Only the pass that made a step reads its parameters.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import math
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Literal, get_args

from stablehlo_mem.ir.bindings import ir
from stablehlo_mem.ir.graph import Graph, OpId, OpPath, Path, nested_graph, op_id
from stablehlo_mem.targets.chips import Chip
from stablehlo_mem.utils.units import parse_bytes

Numerics = Literal["exact", "reassociate", "relaxed"]
"""exact: no float sum is regrouped; reassociate: sums may be; relaxed: also cheaper, less precise forms."""

CHUNK_SHARE = 0.25
"""Share of a goal's bytes that the chunks of one step may take where the other values alone exceed the goal, because
later steps make those smaller: chosen; trying 3/4 and 1/16 too makes no plan of the suite faster (prices.py)."""

_SHARES = (0.25, 0.5, 0.75, 1.0)
"""Shares that `prefix_lengths` takes: a few for the planner to choose from."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What `optimize` may do.

    Attributes:
        numerics: see `Numerics`.
        passes: names of the passes allowed, None for all.
        tune: time the best few plans on this machine's device, on drawn arguments, and take the fastest. The result
            depends on the machine and its load; with "min" nothing is timed.
        max_compiles: how often the target's compiler may be asked.
        max_slowdown: a plan's estimated time over the original's beyond which a budget counts as not kept; None for no
            limit. With budget="min" twice as much is allowed, and plans of less than a millisecond are not held to it.
        max_seconds: after so long planning ends with the best program found so far, once the compilation or rewrite
            that is under way has ended. The result then depends on the machine, and is not kept in the cache.
        host_memory: bytes of the host's memory in which values may be kept that are not needed on the device for a
            while, such as "64GiB". None for none: then what the compiler needs there itself, for arguments and results
            that are there, is reported and not bounded.
        verify: run the MLIR verifier and check the signature of the result.
        cache: reuse plans of earlier calls: those in $STABLEHLO_MEM_CACHE, or beside the executables that JAX keeps
            (`jax_compilation_cache_dir`). `jit` keeps its own too.
    """

    numerics: Numerics = "reassociate"
    passes: tuple[str, ...] | None = None
    tune: bool = False
    max_compiles: int = 16
    max_slowdown: float | None = 2.0
    max_seconds: float | None = None
    host_memory: int | str | None = None
    verify: bool = True
    cache: bool = True

    @property
    def host_bytes(self) -> int:
        """`host_memory` in bytes; 0 for none.

        Raises:
            InputError: it is no number of bytes.
        """
        return 0 if self.host_memory is None else parse_bytes(self.host_memory, "host_memory")


def allows(options: Options, numerics: Numerics) -> bool:
    """Whether options allow what needs these numerics."""
    return weakest((options.numerics, numerics)) == options.numerics


def weakest(numerics: Iterable[Numerics]) -> Numerics:
    """The least strict of some."""
    return max(numerics, key=get_args(Numerics).index)


def and_others(count: int) -> str:
    """What a summary adds to the first of so many values: " and 2 others", "" for one."""
    return f" and {count - 1} other{'s' * (count > 2)}" if count > 1 else ""


def prefix_lengths(
    sizes: Iterable[int], missing: float = math.inf, *, room: float = math.inf, shares: Iterable[float] = _SHARES
) -> list[int]:
    """How many of some values candidates take, in order: shares of their bytes, and just enough for what is missing.

    Args:
        sizes: bytes of each value.
        missing: bytes over the goal.
        room: bytes that they may have together.
    """
    reached = list(itertools.accumulate(sizes))
    reached = reached[: bisect.bisect_right(reached, room)]
    aims = [*(share * reached[-1] for share in shares), missing] if reached else []
    return sorted({1 + bisect.bisect_left(reached, aim) for aim in aims if aim <= reached[-1]})


@dataclasses.dataclass(frozen=True)
class Goal:
    """What the passes are asked for: at most `temp_bytes` of temporaries, by the static profile of a chip.

    Attributes:
        chip: memory and time are estimated for it.
        options: what is allowed.
        temp_bytes: the temporaries to reach.
        max_seconds: estimated time of one execution beyond which a program is too slow.
        include_small_values: split smaller values too, so that loops reach further from the values at the peak.
        prefer_memory: of several replacements that save time, take the one that needs the least memory.
    """

    chip: Chip
    options: Options
    temp_bytes: int
    max_seconds: float = math.inf
    include_small_values: bool = False
    prefer_memory: bool = False


@dataclasses.dataclass(frozen=True)
class SizeParams:
    """Base of the parameters in which the sizes of a step differ: each field has the name of one of the step's."""


@dataclasses.dataclass(frozen=True)
class StepParams:
    """Base of a step's parameters: each pass has a frozen dataclass of plain values and tuples.

    `utils.plain_data` writes it as JSON and reads it back by the types of its fields.
    """

    @property
    def size(self) -> SizeParams | None:
        """The parameters in which the sizes of the step differ; None if it has one size only."""
        return None


Identity = tuple[Hashable, ...]
"""See `Candidate.identity`."""


@dataclasses.dataclass(frozen=True)
class Step:
    """One decision: a pass, the fingerprint of the module it applies to and the parameters of the pass."""

    pass_name: str
    input_fingerprint: str
    params: StepParams


@dataclasses.dataclass(frozen=True)
class Size:
    """A step in another size: the parameters that differ, and the estimates for it.

    `moved_seconds` is the part of the time that `cost_model.graph_seconds` leaves out, as it models no caches.
    """

    params: SizeParams
    saved_bytes: int
    added_seconds: float
    moved_seconds: float


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A step that the planner could take, and estimates of what it saves and costs.

    Attributes:
        saved_bytes: static estimate of the bytes freed at the peak.
        added_seconds: static estimate of the time added (negative: saved).
        numerics: the weakest `Options.numerics` that allows it.
        summary: what it does, in a few words for people: "split exponential f32[64,128] along dimension 0".
        identity: the name of the pass and the place of the step. Candidates for one module with the same identity
            differ only in how the step is done: a search that must not begin with one of them begins with none.
        refusal_if_useless: the refusal to report if the step turns out not to lower the peak; its location is the
            step's.
        sizes: all sizes of the step, its own among them, fastest first; () if it has one only.
        moved_seconds: see `Size`.
        apply_to_copy: applies the step to a copy of the module it was proposed for, without matching again; None: the
            pass applies it. It stays in this process.
        dedup_key: candidates for one module with the same key and the same size lead to the same module. None: unknown.
        family: candidates of one pass with the same family are expected to do much the same, so one of each family is
            tried before a second of any.
        needs_lookahead: the step lowers nothing by itself, but steps after it may; it is judged by the best of them.
    """

    step: Step
    saved_bytes: int
    added_seconds: float
    numerics: Numerics
    summary: str
    identity: Identity
    refusal_if_useless: Refusal
    sizes: tuple[Size, ...] = ()
    moved_seconds: float = 0.0
    apply_to_copy: Callable[[ir.Module, Any], None] | None = dataclasses.field(default=None, repr=False, compare=False)
    dedup_key: Hashable = dataclasses.field(default=None, repr=False, compare=False)
    family: Hashable = None
    needs_lookahead: bool = False

    def resized(self, size: Size) -> Candidate:
        """The candidate in another size."""
        return dataclasses.replace(
            self,
            step=dataclasses.replace(self.step, params=dataclasses.replace(self.step.params, **vars(size.params))),
            saved_bytes=size.saved_bytes,
            added_seconds=size.added_seconds,
            moved_seconds=size.moved_seconds,
        )


@dataclasses.dataclass(frozen=True)
class Refusal:
    """Why a value was not made smaller.

    Attributes:
        op: the op that stands in the way.
        value: how it reads to people, e.g. "dot_general f32[8,16384,16384]".
        nbytes: bytes of that value.
        dimension: the dimension that could not be split, -1 for the value as a whole.
        code: a stable short name of the reason, e.g. "needs-whole-dimension".
        message: the reason for people.
        location: the user's source line, "" if unknown.
    """

    op: OpId
    value: str
    nbytes: int
    dimension: int
    code: str
    message: str
    location: str

    @staticmethod
    def at(
        main: Graph, op_path: OpPath, value: str, nbytes: int, code: str, message: str, dimension: int = -1
    ) -> Refusal:
        """The refusal at an op of the module whose entry graph is `main`."""
        path, op = op_path
        source = nested_graph(main, path).source(op)
        return Refusal(op_id(main, path, op), value, nbytes, dimension, code, message, source)

    @staticmethod
    def of_value(main: Graph, path: Path, value: int, code: str, message: str) -> Refusal:
        """The refusal of a value that an op of the block at a path computes, as a whole."""
        graph = nested_graph(main, path)
        data = graph.values[value]
        title = f"{graph.title(data.producer)} {data}"
        return Refusal.at(main, (path, data.producer), title, data.nbytes, code, message)
