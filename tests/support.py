"""Helpers of the core's tests: modules in normal form, every split there is, and the yardstick for results."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.export import Exported, export

from stablehlo_mem.analysis.live_ranges import Live
from stablehlo_mem.analysis.peak_memory import Peak, find_peak
from stablehlo_mem.frontend.canonicalize import attach_rules, canonicalize, remove_rules
from stablehlo_mem.frontend.program import Program, emit, ingest
from stablehlo_mem.ir.bindings import clone_module, ir, parse_module
from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.ir.graph import Graph, Path, entry_graph, nested_graph
from stablehlo_mem.pass_api.candidate import Candidate, Goal, Options, Refusal
from stablehlo_mem.passes.compute_where_read import ComputeWhereRead
from stablehlo_mem.passes.fission_scans import FissionScans
from stablehlo_mem.passes.fuse_into_scan import FuseIntoScan
from stablehlo_mem.passes.lookup_from_host import LookupFromHost
from stablehlo_mem.passes.offload_residuals import OffloadResiduals
from stablehlo_mem.passes.offload_to_host import OffloadToHost
from stablehlo_mem.passes.recompute_in_loops import RecomputeInLoops
from stablehlo_mem.passes.recompute_residuals import candidates_at
from stablehlo_mem.passes.rematerialise import DroppedStacks, Rematerialise
from stablehlo_mem.passes.sink_converts import SinkConverts
from stablehlo_mem.rewriting.rewriting_pass import Match, Rewriting, RewritingPass, block_paths
from stablehlo_mem.rewriting.scan_segments import Backward, find_backward
from stablehlo_mem.rewriting.scan_stacks import ScanLoop, find_readers, find_scan, stored
from stablehlo_mem.sharding_rules import rule_book
from stablehlo_mem.splitting.axis import Axis, grow_axis
from stablehlo_mem.splitting.loop_schedule import LoopSchedule
from stablehlo_mem.splitting.loop_scheduling import schedule_loops
from stablehlo_mem.splitting.regrouping import regroups
from stablehlo_mem.splitting.saved_values import worth_saving
from stablehlo_mem.splitting.split_step import Split, split
from stablehlo_mem.targets.chips import CHIPS
from tests.dots_as_sums import dots_as_sums, dots_go_by_shape

HONEST: dict[str, Any] = {"xla_cpu_experimental_ynn_fusion_type": ""}
"""XLA:CPU's fusions of dots with what is around them off: they round differently at different sizes."""

OPTIMISED: dict[str, Any] = {
    **HONEST,
    "xla_backend_optimization_level": 3,
    "xla_llvm_disable_expensive_passes": False,
}
"""The same with LLVM's optimisations, without which (conftest.py) sums of a dot go by its shape."""

UNOPTIMISED: dict[str, Any] = {**HONEST, "xla_backend_optimization_level": 0}
"""The same without LLVM's optimisations, in half the time: for programs whose memory alone is asked for, as buffers are
assigned before LLVM generates code."""

PLAIN: dict[str, Any] = {**UNOPTIMISED, "xla_cpu_parallel_codegen_split_count": 1}
"""The same without XLA's compiler of fusions by MLIR, where it can be turned off, in a fifth of the time: for results,
not for memory, which is other where scatters are."""
if jax.__version_info__ < (0, 11):
    PLAIN["xla_cpu_use_fusion_emitters"] = False


def spec(*shape: int, dtype: Any = np.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def normals(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    """Normally distributed numbers: the same at every call, others for another shape or seed."""
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(dtype)


def exported(fun: Callable[..., Any], *specs: Any, platform: str = "cpu") -> Exported:
    return export(jax.jit(fun), platforms=[platform])(*specs)


def text(module: ir.Module) -> str:
    """The program without rules and locations."""
    copy = clone_module(module)
    remove_rules(copy)
    return str(copy.operation.get_asm(enable_debug_info=False))


def normal(program: Program | str) -> ir.Module:
    """A module in normal form, its rules attached."""
    module = parse_module(program) if isinstance(program, str) else clone_module(program.module)
    canonicalize(module)
    return module


def rewrite(module: ir.Module, one: RewritingPass, *, prefer_memory: bool = False) -> int:
    """Applies a rewriting pass everywhere it matches, worth it or not, and returns in how many places."""
    main = entry_graph(module)
    sites: list[tuple[Path, int]] = []
    for path in block_paths(main):
        graph = nested_graph(main, path)
        removed: set[int] = set()
        for op in reversed(graph.ops):
            if op.name in one.roots and op.index not in removed:
                match = one.match(graph, op.index, prefer_memory=prefer_memory)
                if isinstance(match, Match):
                    sites.append((path, op.index))
                    removed.update(match.removed)
    if sites:
        one.apply(module, Rewriting(roots=tuple(sorted(sites)), prefer_memory=prefer_memory))
        assert module.operation.verify()
    return len(sites)


@dataclasses.dataclass(frozen=True)
class Rewritten:
    """A function as a rewriting pass leaves it: in how many places it was rewritten, the program, both results."""

    fun: Callable[..., Any]
    args: tuple[Any, ...]
    count: int
    text: str
    new: list[np.ndarray]
    old: list[np.ndarray]

    @property
    def same_bits(self) -> bool:
        return all(same_bits(new, old) for new, old in zip(self.new, self.old, strict=True))

    @property
    def wrong(self) -> list[str]:
        """What the yardstick finds wrong with the results."""
        results = zip(self.new, self.old, in_f64(self.fun, *self.args), strict=True)
        return [wrong for wrong in (yardstick(*three) for three in results) if wrong]


def rewritten(
    one: RewritingPass,
    fun: Callable[..., Any],
    *args: Any,
    prefer_memory: bool = False,
    options: dict[str, Any] = PLAIN,
) -> Rewritten:
    """A function rewritten wherever a pass matches, after which it must find nothing more."""
    program = program_of(fun, *args)
    module = normal(program)
    count = rewrite(module, one, prefer_memory=prefer_memory)
    attach_rules(module)
    assert rewrite(module, one, prefer_memory=prefer_memory) == 0
    remove_rules(module)
    new, old = (run(program, each, *args, options=options) for each in (module, None))
    return Rewritten(fun, args, count, text(module), new, old)


def matches(
    one: RewritingPass, fun: Callable[..., Any], *args: Any, prefer_memory: bool = True, chip: str = "cpu"
) -> list[Match | Blocked | None]:
    """What a rewriting pass says, for a chip, of each op of a function that could be the root of a match."""
    graph = graph_of(program_of(fun, *args))
    found = [one.match(graph, op.index, prefer_memory=prefer_memory) for op in graph.ops if op.name in one.roots]
    return [one.why_not_on(graph, m, CHIPS[chip]) or m if isinstance(m, Match) else m for m in found]


def refusals(
    one: RewritingPass, fun: Callable[..., Any], *args: Any, prefer_memory: bool = True, chip: str = "cpu"
) -> list[str | Match | None]:
    """The same, of each refusal only its code."""
    found = matches(one, fun, *args, prefer_memory=prefer_memory, chip=chip)
    return [item.code if isinstance(item, Blocked) else item for item in found]


_KEPT: list[ir.Module] = []


def graph_of(program: Program | str) -> Graph:
    """The graph of a program in normal form; its module is kept, or the graph's handles would dangle."""
    _KEPT.append(normal(program))
    return entry_graph(_KEPT[-1])


@dataclasses.dataclass(frozen=True)
class Possible:
    """A split that the analyses allow."""

    path: Path
    graph: Graph
    axis: Axis
    schedule: LoopSchedule
    kept: tuple[int, ...] = ()
    first: int | None = None

    def decision(self, chunk: int) -> Split:
        value, dimension = self.axis.seed
        seed = Split(path=self.path, value=value, dimension=dimension, big_bytes=self.axis.big_bytes, chunk=chunk)
        return dataclasses.replace(seed, streaming=self.streams, kept=self.kept, first=self.first)

    @property
    def reducing(self) -> bool:
        return any(item.accumulated for item in self.schedule.outputs)

    @property
    def regroups(self) -> bool:
        """Whether float sums come out of the loops in another grouping."""
        return regroups(self.schedule)

    @property
    def streams(self) -> bool:
        return self.schedule.is_online

    @property
    def chunks(self) -> tuple[int, ...]:
        """Small, ragged and nearly everything."""
        n = self.axis.n
        return tuple(sorted({c for c in (2, n // 3, n - 1) if 0 < c < n})) or (1,)

    def __str__(self) -> str:
        value, dimension = self.axis.seed
        shape = self.graph.values[value].shape
        producer = self.graph.producer(value)
        name = producer.name if producer else "argument"
        loops = f"{self.schedule.loop_count} loops" + ", streaming" * self.streams + ", keeping" * bool(self.kept)
        return f"{self.path}{name}{list(shape)} along {dimension} ({self.axis.n}), {loops}"


def blocks(graph: Graph, path: Path = ()) -> Iterator[Path]:
    """The blocks a split may work in: a function's, and those of control flow in it."""
    yield path
    for op in graph.ops:
        if op.name in ("stablehlo.while", "stablehlo.case", "stablehlo.if"):
            for i, block in enumerate(op.blocks):
                yield from blocks(block, (*path, (op.index, i)))


def possible_splits(module: ir.Module, big_bytes: Sequence[int] = (1,), *, all_forms: bool = False) -> list[Possible]:
    """Every different split, from every value and dimension, of a module in normal form.

    Args:
        all_forms: also what streams or keeps values; in the end the first loops of axes alone.
    """
    main = entry_graph(module)
    found: dict[Any, Possible] = {}
    parts: dict[Any, Possible] = {}
    for path in blocks(main):
        graph = nested_graph(main, path)
        rules = rule_book(graph)
        for value in graph.values:
            for dimension, size in enumerate(value.shape):
                if size < 2 or not value.is_computed:
                    continue
                for least in big_bytes:
                    axis = grow_axis(graph, rules, (value.index, dimension), least)
                    for streams in (False, True) if all_forms else (False,):
                        schedule = schedule_loops(graph, axis, streaming=streams)
                        if schedule is not None and schedule.is_online is streams:
                            key = (path, schedule.inner_ops, axis.n, axis.split_ops, streams)
                            found.setdefault(key, Possible(path, graph, axis, schedule))
                            sets = worth_saving(graph, schedule, CHIPS["cpu"], 1 << 62)[:1] if all_forms else ()
                            for kept in sets:
                                found.setdefault(
                                    (*key, kept), Possible(path, graph, axis, schedule.with_saved(kept), kept)
                                )
                            for first in range(1, schedule.loop_count) if all_forms else ():
                                part = schedule_loops(graph, schedule.part_of_axis(first), streaming=streams)
                                if part is not None and part.is_online is streams:
                                    possible = Possible(path, graph, axis, part, first=first)
                                    parts.setdefault((*key, first), possible)
    return [*found.values(), *parts.values()]


def apply_split(module: ir.Module, possible: Possible, chunk: int) -> ir.Module:
    """A clone with the split applied and verified."""
    copy = clone_module(module)
    split(copy, possible.decision(chunk))
    copy.operation.verify()
    remove_rules(copy)
    return copy


def run(program: Program, module: ir.Module | None, *args: Any, options: dict[str, Any] = PLAIN) -> list[np.ndarray]:
    """Runs a module with a program's signature on the CPU, the original if None."""
    if dots_go_by_shape(tuple(sorted(options.items()))):
        module = clone_module(program.module if module is None else module)
        dots_as_sums(module)
    call = program.exported if module is None else emit(program, module)
    assert call is not None
    shapes = tuple((np.shape(a), str(np.asarray(a).dtype)) for a in args)
    how = jax.config.read("jax_enable_x64"), *sorted(options.items())
    key = call.mlir_module_serialized, call.in_tree, call.out_tree, shapes, how
    compiled = _COMPILED.pop(key, None) or jax.jit(call.call).lower(*args).compile(compiler_options=options)
    _COMPILED[key] = compiled
    if len(_COMPILED) > MOST_COMPILED:
        del _COMPILED[next(iter(_COMPILED))]
    return [np.asarray(leaf) for leaf in jax.tree.leaves(compiled(*args))]


MOST_COMPILED = 256
"""Executables kept, the last ones used: more than any test compiles, so that the next one has other arguments only."""

_COMPILED: dict[Any, Any] = {}


def in_f64(fun: Callable[..., Any], *args: Any) -> list[np.ndarray]:
    """The function's results in double precision."""
    with jax.enable_x64(True):
        wide = [_widened(np.asarray(a)) for a in args]
        compiled = jax.jit(fun).lower(*wide).compile(compiler_options=PLAIN)
        return [np.asarray(leaf) for leaf in jax.tree.leaves(compiled(*wide))]


def _widened(a: np.ndarray) -> np.ndarray:
    if a.dtype.kind == "c":
        return a.astype(np.complex128)
    return a.astype(np.float64) if is_float(a) else a


def is_float(a: np.ndarray) -> bool:
    return jax.numpy.issubdtype(a.dtype, np.inexact)


def same_bits(new: np.ndarray, old: np.ndarray) -> bool:
    if new.dtype != old.dtype or new.shape != old.shape:
        return False
    if not is_float(old):
        return bool((new == old).all())
    new, old = (a.astype(np.complex128) for a in (new, old))
    return all(_same_floats(getattr(new, part), getattr(old, part)) for part in ("real", "imag"))


def _same_floats(new: np.ndarray, old: np.ndarray) -> bool:
    equal = (new == old) & (np.signbit(new) == np.signbit(old))
    return bool((equal | (np.isnan(new) & np.isnan(old))).all())


def yardstick(new: np.ndarray, old: np.ndarray, exact: np.ndarray) -> str | None:
    """What is wrong with a regrouped result: None if max|new − f64| ≤ 2·max|old − f64| + 1e-6·max|f64|.

    Where the original is infinite or not a number, the new result must be the same.
    """
    if new.dtype != old.dtype or new.shape != old.shape:
        return f"{new.dtype}{new.shape} instead of {old.dtype}{old.shape}"
    if not is_float(old):
        return None if (new == old).all() else f"{(new != old).mean():.1%} of the elements differ"
    wide = np.complex128 if old.dtype.kind == "c" else np.float64
    new, old, exact = (a.astype(wide) for a in (new, old, exact))
    finite = np.isfinite(old)
    if not np.array_equal(new[~finite], old[~finite], equal_nan=True):
        return "other infinities or NaNs"
    if not np.isfinite(new[finite]).all():
        return "infinities or NaNs where the original has none"
    new, old, exact = (a[finite & np.isfinite(exact)] for a in (new, old, exact))
    if not new.size:
        return None
    error, own = np.abs(new - exact).max(), np.abs(old - exact).max()
    scale = np.abs(exact).max()
    return None if error <= 2 * own + 1e-6 * scale else f"error {error:.3g}, the original's {own:.3g}, of {scale:.3g}"


def memory_of(compiled: Any) -> tuple[int, int]:
    """(arguments + outputs − aliased, temporaries) in bytes, by the compiler."""
    m = compiled.memory_analysis()
    return m.argument_size_in_bytes + m.output_size_in_bytes - m.alias_size_in_bytes, m.temp_size_in_bytes


def program_of(fun: Callable[..., Any], *args: Any) -> Program:
    specs = [jax.ShapeDtypeStruct(np.shape(a), np.asarray(a).dtype) for a in args]
    return ingest(exported(fun, *specs))


def droppable(graph: Graph, scan: ScanLoop) -> list[int]:
    """The carries of a scan that are stacks read row by row, of anything but what a step begins with."""
    loop = graph.ops[scan.op]
    body = loop.blocks[1]
    computed = (carry for carry, row in scan.rows.items() if stored(body, row) not in body.arguments)
    return [c for c in computed if not isinstance(find_readers(graph, loop.results[c]), Blocked)]


def without_stacks(module: ir.Module, choose: Callable[[list[int]], list[int]] = lambda carries: carries) -> int:
    """Drops, in place, those chosen of the stacks of the first scan that has some to drop, and returns how many."""
    graph = entry_graph(module)
    for op in graph.ops:
        scan = find_scan(graph, op)
        chosen = choose(droppable(graph, scan)) if scan else []
        if scan and chosen:
            _drop(module, op.index, chosen)
            assert module.operation.verify()
            return len(chosen)
    return 0


def dropped_in_pairs(graph: Graph) -> list[Candidate]:
    """What rematerialise drops on CPU of what a `shard_map` stores for its gradient, step by step."""
    goal = Goal(CHIPS["cpu"], Options(), 0)
    found = Rematerialise().propose(graph, find_peak(graph, goal.chip), goal)
    of_pairs = (c for c in found if isinstance(c, Candidate) and c.step.params.pair)
    return [c for c in of_pairs if c.step.params.segment == 1]


def _drop(module: ir.Module, loop: int, stacks: list[int], segment: int = 1, path: Path = ()) -> None:
    params = DroppedStacks(path=path, loop=loop, dropped=tuple(stacks), stacks=0, steps=0, segment=segment)
    Rematerialise().apply(module, params)


def in_segments(module: ir.Module, size: int, *, only_inputs: bool = True) -> int:
    """Takes, in place, the first scan with stacks in segments, or of its steps' inputs, and returns how many stacks."""
    for path in block_paths(entry_graph(module)):
        graph = nested_graph(entry_graph(module), path)
        for op in graph.ops:
            scan = find_scan(graph, op)
            body = op.blocks[1] if scan else graph
            rows = scan.rows.items() if scan else ()
            stacks = [carry for carry, row in rows if not only_inputs or stored(body, row) in body.arguments]
            if not only_inputs:
                stacks = [carry for carry in stacks if isinstance(find_backward(graph, scan, [carry]), Backward)]
            if scan and stacks:
                assert isinstance(find_backward(graph, scan, stacks), Backward)
                _drop(module, op.index, stacks, size, path)
                assert module.operation.verify()
                return len(stacks)
    return 0


def repeated(graph: Graph, chip: str = "cpu") -> list[Candidate]:
    """What may be computed again in the loops that read it, whatever its size."""
    goal = Goal(CHIPS[chip], Options(), 0)
    found = RecomputeInLoops().propose(graph, find_peak(graph, goal.chip), goal)
    return [one for one in found if isinstance(one, Candidate)]


def peak_with(main: Graph, path: Path, values: Iterable[int]) -> Peak:
    """The peak as if it were at the end of a block, with some values of the block alive."""
    graph = nested_graph(main, path)
    live = tuple(Live(path, v, graph.values[v].nbytes) for v in values)
    return dataclasses.replace(find_peak(main, CHIPS["cpu"]), path=path, op=len(graph.ops) - 1, live=live)


def accumulated(main: Graph, path: Path = ()) -> list[Candidate | Refusal]:
    """What the scans of a block accumulate: in a loop of its own, or why not."""
    loops = (op for op in nested_graph(main, path).ops if op.name == "stablehlo.while")
    peak = peak_with(main, path, (v for op in loops for v in op.results))
    return list(FissionScans().propose(main, peak, Goal(CHIPS["cpu"], Options(), 0)))


def fusable(main: Graph, path: Path = (), options: Options = Options()) -> list[Candidate | Refusal]:
    """For each stack of a block's scans that is read whole: its readers in the scan's loop, or why not."""
    graph = nested_graph(main, path)
    scans = (op for op in graph.ops if find_scan(graph, op, backwards=True) is not None)
    peak = peak_with(main, path, (v for op in scans for v in op.results))
    return list(FuseIntoScan().propose(main, peak, Goal(CHIPS["cpu"], options, 0)))


def offered(graph: Graph, chip: str = "tpu:v5e") -> list[Candidate]:
    """The slices whose converts sink into loops, at the peak on a chip."""
    goal = Goal(CHIPS[chip], Options(), 0)
    return list(SinkConverts().propose(graph, find_peak(graph, goal.chip), goal))


def offloadable(graph: Graph, chip: str = "cuda:h200", host: str = "1GiB") -> list[Candidate | Refusal]:
    """The stacks that may lie in the host's memory, at the peak on a chip, and why some may not."""
    goal = Goal(CHIPS[chip], Options(host_memory=host), 0)
    return list(OffloadToHost().propose(graph, find_peak(graph, goal.chip), goal))


def residuals(graph: Graph, chip: str = "cuda:h200", host: str = "1GiB") -> list[Candidate]:
    """The values of straight-line code that may lie in the host's memory, at the peak on a chip."""
    goal = Goal(CHIPS[chip], Options(host_memory=host), 0)
    found = OffloadResiduals().propose(graph, find_peak(graph, goal.chip), goal)
    return [one for one in found if isinstance(one, Candidate)]


def recomputable(graph: Graph, chip: str = "cuda:h200") -> list[Candidate]:
    """What the straight-line code of a function may compute again after the peak on a chip, however few layers."""
    goal = Goal(CHIPS[chip], Options(), 0)
    peak = find_peak(graph, goal.chip)
    return list(candidates_at(graph, (), peak.op, peak, goal)) if not peak.path else []


def lookups(graph: Graph) -> list[Candidate]:
    """The lookups in tables in the host's memory, at the peak on a TPU."""
    goal = Goal(CHIPS["tpu:v5e"], Options(), 0)
    found = LookupFromHost().propose(graph, find_peak(graph, goal.chip), goal)
    return [one for one in found if isinstance(one, Candidate)]


def first_for_gpu(graph: Graph, numerics: Any = "reassociate") -> Candidate:
    """The first value that is better computed where it is read, on an H200."""
    goal = Goal(CHIPS["cuda:h200"], Options(numerics=numerics), 0)
    return next(iter(ComputeWhereRead().cheapen(graph, goal)))
