"""Steps of all passes, forced: drawn in any block and taken whatever their size or gain, one after the other.

What comes out must compute the same: to the last bit where no sum moves and no product is made by another kernel, to
the yardstick else. A pass that fails is a finding.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import random
import warnings
from collections.abc import Callable, Generator
from typing import Any
from unittest import mock

import jax
import numpy as np
from jax.export import export

from stablehlo_mem.analysis.live_ranges import Live
from stablehlo_mem.analysis.peak_memory import Peak, find_peak
from stablehlo_mem.frontend.canonicalize import remove_rules
from stablehlo_mem.frontend.program import emit, ingest
from stablehlo_mem.ir.bindings import clone_module
from stablehlo_mem.ir.graph import Graph, Path, nested_graph
from stablehlo_mem.pass_api.candidate import Candidate, Goal, Numerics, Options, Step, allows, weakest
from stablehlo_mem.passes import PASSES, blocked_top_k, sort_to_top_k
from stablehlo_mem.passes.reblock_scans import ReblockScans, outline
from stablehlo_mem.passes.rematerialise import DroppedStacks, Rematerialise
from stablehlo_mem.passes.sink_converts import SinkConverts
from stablehlo_mem.passes.split_into_loops import SplitIntoLoops
from stablehlo_mem.planner import search_state
from stablehlo_mem.planner.search_state import SearchState
from stablehlo_mem.rewriting.rewriting_pass import Match, Rewriting, RewritingPass, why_left_alone
from stablehlo_mem.rewriting.scan_segments import find_backward, segment_length
from stablehlo_mem.rewriting.scan_stacks import find_scan, stored
from stablehlo_mem.sharding_rules import rule_book
from stablehlo_mem.splitting import candidates
from stablehlo_mem.splitting.axis import grow_axis
from stablehlo_mem.splitting.loop_scheduling import schedule_loops
from stablehlo_mem.splitting.regrouping import regroups, why_not_regrouped
from stablehlo_mem.splitting.saved_values import worth_saving
from stablehlo_mem.splitting.split_step import PASS_NAME, Split
from stablehlo_mem.targets.chips import CHIPS
from tests.properties import awkward, kinds
from tests.properties.check import Seen, compare, difference, in_double, same_results
from tests.properties.drawing import Draw, RandomProgram, is_float
from tests.properties.generate import draw_program
from tests.support import OPTIMISED, blocks, droppable, fusable

LONGEST = 4
"""Steps in a chain."""
_TRIES = 8
"""Draws of a step before a chain ends."""
_RELAXED = 1e-9
"""What a relaxed form may be off, of the largest element: float64 has 1e-16, squared distances lose half of that."""
_STRANGE: dict[Numerics, tuple[float, ...]] = {
    "exact": (np.nan, np.inf, -np.inf),
    "reassociate": (np.nan,),
    "relaxed": (),
}
"""What every third program has among its floats; an infinity times parts of a sum may be no number."""
_CHIPS = ("cpu", "cpu", "cuda:h200", "tpu:v5e")


@dataclasses.dataclass(frozen=True)
class Forced:
    """A step that was drawn; `candidate` where a pass proposed it."""

    step: Step
    numerics: Numerics
    candidate: Candidate | None = None


def drawn_program(seed: int) -> tuple[RandomProgram, Callable[[int, int], int]]:
    """The program of a seed, and what draws its steps."""
    draw = random.Random(f"forced {seed}").randint
    some = (*kinds.KINDS, *awkward.KINDS * 2)
    given = awkward.INDICES, awkward.JUMPING, (*kinds.NOT_DIFFERENTIABLE, *awkward.NOT_DIFFERENTIABLE)
    return draw_program(draw, draw(2, 6), some, *given), draw


def check(seed: int, seen: Seen) -> None:
    """Draws a program and steps and compares; an AssertionError or any exception is a finding."""
    program, draw = drawn_program(seed)
    with jax.enable_x64(True), warnings.catch_warnings(), small_values_too():
        warnings.simplefilter("ignore")
        original = export(jax.jit(program), platforms=["cpu"])(*program.arguments)
        given = ingest(original)
        options = _options(program)
        seen.counts["programs"] += 1
        state, taken = chain(search_state.start_of(given, _goal(draw, options)), draw, options)
        for one in taken:
            seen.counts[f"step {one.step.pass_name}"] += 1
        seen.counts["changed" if taken else "unchanged"] += 1
        if taken:
            module = clone_module(state.module)
            remove_rules(module)
            numerics = weakest(one.numerics for one in taken)
            arguments = awkward.data(program, seed, () if seed % 3 else _STRANGE[numerics])
            _compare(program, original, emit(given, module), arguments, numerics, seen)


def _options(program: RandomProgram) -> Options:
    """Relaxed forms only where what they lose is little: in double precision, with no jumps after them."""
    wide = all(a.dtype == np.float64 for a in program.arguments if is_float(a))
    return Options(numerics="relaxed" if wide and program.continuous and not program.whole else "reassociate")


def _goal(draw: Draw, options: Options) -> Goal:
    return Goal(CHIPS[_CHIPS[draw(0, len(_CHIPS) - 1)]], options, 0)


@contextlib.contextmanager
def small_values_too() -> Generator[None]:
    """No value is too small for a loop, no row too short for a top-k, or for one in blocks."""
    thresholds = ((candidates, "_SMALLEST", 1), (sort_to_top_k, "_LEAST", 1), (blocked_top_k, "_LEAST", 1))
    with contextlib.ExitStack() as stack:
        for module, name, value in (*thresholds, (blocked_top_k, "_LANES", 2), (blocked_top_k, "_MIN_GAIN", 0)):
            stack.enter_context(mock.patch.object(module, name, value))
        yield


def chain(state: SearchState, draw: Draw, options: Options) -> tuple[SearchState, list[Forced]]:
    """As many steps as are drawn, one on what the other left."""
    taken: list[Forced] = []
    for _ in range(draw(1, LONGEST)):
        one = next((f for f in (_drawn(state, draw, options) for _ in range(_TRIES)) if f is not None), None)
        if one is None:
            break
        state = _taken(state, one, options)
        taken.append(one)
    return state, taken


def _taken(state: SearchState, one: Forced, options: Options) -> SearchState:
    """The state after a step; one that was proposed does the same when it is done from what it says alone."""
    goal = Goal(state.chip, options, 0)
    module = clone_module(state.module)
    search_state.take(module, one.step, state.steps)
    if one.candidate is None:
        new = search_state.start(module, goal, state.graph.interned)
        return dataclasses.replace(new, steps=(*state.steps, one.step))
    new = search_state.apply(state, one.candidate, goal)
    assert str(new.module) == str(module), f"{one.step.pass_name}: another module when it is replayed"
    return new


def _drawn(state: SearchState, draw: Draw, options: Options) -> Forced | None:
    splits, proposed, scans = (_any_split,) * 2, (_proposed,) * 3, (_stacks, _fused, _through_scans)
    draws = (*splits, *proposed, _rewriting, _rewriting, *scans)
    found = draws[draw(0, len(draws) - 1)](state, draw)
    return found if found is not None and allows(options, found.numerics) else None


def _block(main: Graph, draw: Draw) -> Path:
    paths = list(blocks(main))
    return paths[draw(0, len(paths) - 1)]


def _any_split(state: SearchState, draw: Draw) -> Forced | None:
    """A split from any value of any block along any dimension, by any chunk."""
    return _split_in(state.graph, _block(state.graph, draw), PASS_NAME, draw)


def _split_in(main: Graph, path: Path, name: str, draw: Draw) -> Forced | None:
    graph = nested_graph(main, path)
    value = graph.values[draw(0, len(graph.values) - 1)]
    dimensions = [d for d, size in enumerate(value.shape) if size > 1]
    if not dimensions or not value.is_computed:
        return None
    least = (1, 1, 256, max(1, value.nbytes // 2))[draw(0, 3)]
    axis = grow_axis(graph, rule_book(graph), (value.index, dimensions[draw(0, len(dimensions) - 1)]), least)
    region, first = schedule_loops(graph, axis, streaming=bool(draw(0, 1))), None
    if region is not None and region.loop_count > 1 and draw(0, 1):
        whole, first = region, draw(1, region.loop_count - 1)
        region = schedule_loops(graph, whole.part_of_axis(first), streaming=whole.is_online)
        if region is not None and region.is_online is not whole.is_online:
            return None
    if region is None or axis.n < 2 or why_not_regrouped(main, path, region, Options()):
        return None
    sets = [(), *worth_saving(graph, region, CHIPS["cpu"], 1 << 62)] if not draw(0, 3) else [()]
    split = Split(
        path=path,
        value=axis.seed[0],
        dimension=axis.seed[1],
        big_bytes=least,
        chunk=draw(1, axis.n - 1),
        streaming=region.is_online,
        first=first,
        kept=sets[draw(0, len(sets) - 1)],
    )
    numerics: Numerics = "reassociate" if regroups(region) else "exact"
    return Forced(Step(name, "", split), numerics)


def _through_scans(state: SearchState, draw: Draw) -> Forced | None:
    """A split of a block in which associative scans are ops."""
    module = clone_module(state.module)
    outline(module)
    main = search_state.entry_graph(module)
    path = _block(main, draw)
    graph = nested_graph(main, path)
    if not any(op.name == "stablehlo.composite" for op in graph.ops):
        return None
    return _split_in(main, path, ReblockScans.name, draw)


def _proposed(state: SearchState, draw: Draw) -> Forced | None:
    """What a pass proposes for a peak in any block with few values alive, in any size."""
    path = _block(state.graph, draw)
    peak = _peak(state, path, draw)
    ones = [p for p in PASSES if not isinstance(p, RewritingPass)]
    one = ones[draw(0, len(ones) - 1)] if draw(0, 1) else SplitIntoLoops()
    if isinstance(one, SinkConverts):
        peak = find_peak(state.graph, state.chip)
    goal = Goal(state.chip, Options(numerics="relaxed"), 0, include_small_values=not draw(0, 2))
    found = [c for c in one.propose(state.graph, peak, goal) if isinstance(c, Candidate)]
    if not found:
        return None
    candidate = found[draw(0, len(found) - 1)]
    if candidate.sizes:
        candidate = candidate.resized(candidate.sizes[draw(0, len(candidate.sizes) - 1)])
    return Forced(candidate.step, candidate.numerics, candidate)


def _peak(state: SearchState, path: Path, draw: Draw) -> Peak:
    graph = nested_graph(state.graph, path)
    values = [v for v in graph.values if v.is_computed and v.nbytes]
    some = [values[draw(0, len(values) - 1)] for _ in range(draw(1, 3))] if values else []
    live = [Live(path, v.index, v.nbytes) for v in {v.index: v for v in some}.values()]
    peak = find_peak(state.graph, state.chip)
    return dataclasses.replace(peak, path=path, op=len(graph.ops) - 1, live=tuple(live))


def _rewriting(state: SearchState, draw: Draw) -> Forced | None:
    """A rewriting pass in some of the places where it matches."""
    ones = [p for p in PASSES if isinstance(p, RewritingPass)]
    prefer_memory, first = bool(draw(0, 1)), draw(0, len(ones) - 1)
    found = (_places(state, one, draw, prefer_memory=prefer_memory) for one in (*ones[first:], *ones[:first]))
    return next((one for one in found if one is not None), None)


def _places(state: SearchState, one: RewritingPass, draw: Draw, *, prefer_memory: bool) -> Forced | None:
    sites: list[tuple[Path, int]] = []
    numerics: list[Numerics] = ["exact"]
    for path in blocks(state.graph):
        graph = nested_graph(state.graph, path)
        removed: set[int] = set()
        for op in reversed(graph.ops):
            match = one.match(graph, op.index, prefer_memory=prefer_memory) if op.name in one.roots else None
            if not isinstance(match, Match) or why_left_alone(state.graph, path, match, Options()):
                continue
            if not removed.intersection(match.removed) and draw(0, 2):
                sites.append((path, op.index))
                numerics.append(match.numerics)
                removed.update(match.removed)
    step = Step(one.name, "", Rewriting(roots=tuple(sorted(sites)), prefer_memory=prefer_memory))
    return Forced(step, weakest(numerics)) if sites else None


def _stacks(state: SearchState, draw: Draw) -> Forced | None:
    """Some stacks of a scan are dropped, or taken in segments."""
    path = _block(state.graph, draw)
    graph = nested_graph(state.graph, path)
    for op in graph.ops:
        scan = find_scan(graph, op)
        if scan is None:
            continue
        body = op.blocks[1]
        inputs = [c for c, row in scan.rows.items() if stored(body, row) in body.arguments]
        size = segment_length(scan.steps)
        drop = functools.partial(DroppedStacks, path=path, loop=op.index, stacks=len(scan.rows), steps=scan.steps)
        if inputs and size > 1 and draw(0, 1) and not hasattr(find_backward(graph, scan, inputs), "message"):
            return Forced(Step(Rematerialise.name, "", drop(dropped=tuple(inputs), segment=size)), "exact")
        dropped = [c for c in droppable(graph, scan) if draw(0, 2)]
        if dropped:
            return Forced(Step(Rematerialise.name, "", drop(dropped=tuple(dropped))), "exact")
    return None


def _fused(state: SearchState, draw: Draw) -> Forced | None:
    """What reads a stack of a scan whole runs in the scan's loop."""
    proposed = fusable(state.graph, _block(state.graph, draw), Options(numerics="relaxed"))
    found = [one for one in proposed if isinstance(one, Candidate)]
    if not found:
        return None
    candidate = found[draw(0, len(found) - 1)]
    return Forced(candidate.step, candidate.numerics, candidate)


_BY_SHAPE = tuple(
    f"stablehlo.{name}"
    for name in ("dot", "convolution", "custom_call", "fft", "tanh", "exponential", "sine", "cosine", "log", "power")
)
"""Ops whose kernel, or whose vector instructions, a compiler picks by the shape: others may round otherwise."""


def _compare(
    program: RandomProgram, original: Any, new: Any, arguments: list[np.ndarray], numerics: Numerics, seen: Seen
) -> None:
    old, got = ([np.asarray(leaf) for leaf in _run(some, arguments)] for some in (original, new))
    if same_results(got, old):
        seen.counts["equal"] += 1
        return
    if same_results(got, op_by_op(program, arguments)):
        seen.counts["the compiler gets the original wrong"] += 1
        return
    text = original.mlir_module()
    exact = program.whole or (numerics == "exact" and not any(name in text for name in _BY_SHAPE))
    assert not exact, f"other bits ({numerics}): {difference(got, old)}"
    seen.counts["rounded otherwise"] += 1
    true = in_double(program, arguments)
    for new_one, old_one, true_one in zip(got, old, true, strict=True):
        if numerics == "relaxed":
            np.testing.assert_allclose(new_one, old_one, rtol=_RELAXED, atol=_RELAXED * np.abs(old_one).max(initial=0))
        else:
            compare(new_one, old_one, true_one, program.continuous)


def op_by_op(program: RandomProgram, arguments: list[np.ndarray]) -> list[np.ndarray]:
    """What a program computes where the compiler has nothing to fold: it gets some wrong (docs/xla_bugs.md)."""
    with jax.disable_jit():
        return [np.asarray(leaf) for leaf in program(*map(jax.numpy.asarray, arguments))]


def _run(exported: Any, arguments: list[np.ndarray]) -> Any:
    return jax.jit(exported.call).lower(*arguments).compile(compiler_options=OPTIMISED)(*arguments)


def text_of(seed: int) -> str:
    """The program of a seed and the steps that are forced, for people."""
    program, draw = drawn_program(seed)
    with jax.enable_x64(True), small_values_too():
        given = ingest(export(jax.jit(program), platforms=["cpu"])(*program.arguments))
        _, taken = chain(search_state.start_of(given, _goal(draw, _options(program))), draw, _options(program))
    return "\n".join([str(program), *(f"{t.step.pass_name} ({t.numerics}): {t.step.params}" for t in taken)])
