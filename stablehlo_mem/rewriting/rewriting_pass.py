"""The base class of passes that replace an op by a cheaper equivalent: where to look, what it saves, how to apply it.

Such a pass matches at a root op and emits the replacement. A step names roots only, so that it is plain data; each is
matched again when the step is applied.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Iterator, Sequence, Set
from typing import Any

from stablehlo_mem.analysis.compilers import compiler_model
from stablehlo_mem.analysis.cost_model import Kernel, fused_seconds
from stablehlo_mem.analysis.fusion_classes import CLASSES, Class
from stablehlo_mem.analysis.op_cost import op_bytes
from stablehlo_mem.analysis.peak_memory import Peak
from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.bindings import ir, run_passes
from stablehlo_mem.ir.block_cse import block_cse
from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.ir.builders import building
from stablehlo_mem.ir.dead_ops import needed_only_by
from stablehlo_mem.ir.float_comparisons import why_rounded_alike
from stablehlo_mem.ir.graph import Graph, OpPath, Path, entry_graph, nested_graph
from stablehlo_mem.ir.graph_copy import graph_of_copy
from stablehlo_mem.ir.trip_count import block_runs, likely_trips
from stablehlo_mem.pass_api.candidate import (
    Candidate,
    Goal,
    Numerics,
    Options,
    Refusal,
    Step,
    StepParams,
    allows,
    weakest,
)
from stablehlo_mem.pass_api.pass_protocol import Pass
from stablehlo_mem.targets.chips import Chip

_WORTHWHILE_SHARE = 0.95
"""A replacement saves time if it takes at most this share of it: estimates do not tell smaller differences apart."""
_MAX_ALONE = 8
"""Matches that are also offered one by one, for when all at once raise the peak: a bound on the modules profiled."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Match:
    """One op that a pass can replace.

    Attributes:
        root: the op whose results are replaced. The replacement is built before it.
        removed: the ops that are dead afterwards, the root among them: see `needed_only_by`.
        new_bytes: of the replacement's intermediates that are alive at once, its results left out.
        kernels: what the replacement costs.
        numerics: the weakest `Options.numerics` that allows it.
        summary: the replacement in a few words, for people: "contract f32[8,8] with f32[8,4]".
        detail: what `emit` needs; it never leaves the pass.
        replaced: the values replaced, where they are not the root's results, such as the slices of these.
        shared_inputs: the values read, if matches that read one in common are to be judged together too: only if all
            of them are replaced are the producers of these values dead.
        even_if_slower: replace it also where that saves no time, because it shows other passes what compilers do.
    """

    root: int
    removed: tuple[int, ...]
    new_bytes: int
    kernels: tuple[Kernel, ...]
    numerics: Numerics
    summary: str
    detail: Any = None
    replaced: tuple[int, ...] = ()
    shared_inputs: tuple[int, ...] = ()
    even_if_slower: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rewriting(StepParams):
    """Which ops are replaced, and with `prefer_memory` by which form: see `RewritingPass.match`."""

    roots: tuple[OpPath, ...]
    prefer_memory: bool


class RewritingPass(Pass[Rewriting]):
    """A pass that replaces ops by a cheaper equivalent. Subclasses have a `name`, `roots`, `match` and `emit`."""

    params_type = Rewriting
    roots: frozenset[str]
    """Names of the ops that may be the root of a match."""

    @abc.abstractmethod
    def match(self, graph: Graph, root: int, *, prefer_memory: bool) -> Match | Blocked | None:
        """The match at an op, or why there is none where one would expect it.

        Args:
            prefer_memory: prefer the least memory to the least time.
        """

    @abc.abstractmethod
    def emit(self, graph: Graph, match: Match) -> Sequence[Any]:
        """Builds the replacement at the insertion point, before the root, and returns what replaces the values."""

    def before_edits(self, graph: Graph) -> None:
        """Is called for each block with matches before any of them is replaced."""

    def why_not_on(self, graph: Graph, match: Match, chip: Chip) -> Blocked | None:
        """Why a match is left alone on a chip, None if it is not: its compiler would make less of it."""
        return None

    def pays_anyway(self, graph: Graph, match: Match, chip: Chip) -> bool:
        """Whether a match is taken where it saves no time by itself."""
        return match.even_if_slower

    def cheapen(self, graph: Graph, goal: Goal) -> Iterator[Candidate]:
        """All the matches, in every block, that save time, in one step; then the first few each by itself."""
        paying: list[_BlockMatch] = []
        for path in block_paths(graph):
            block = _BlockCosts(graph, path, goal.chip)
            matches = [
                m for m in self._matches(block, goal.options, prefer_memory=goal.prefer_memory) if isinstance(m, Match)
            ]
            matches = _outermost([m for m in matches if allows(goal.options, m.numerics)])
            anyway = {m.root for m in matches if self.pays_anyway(block.graph, m, goal.chip)}
            paying += [(block, m) for m in block.paying(matches, anyway)]
        alone = [[one] for one in paying[:_MAX_ALONE]] if len(paying) > 1 else []
        for chosen in (paying, *alone) if paying else ():
            yield self._candidate(chosen, 0, prefer_memory=goal.prefer_memory)

    def propose(self, graph: Graph, peak: Peak, goal: Goal) -> Iterator[Candidate | Refusal]:
        """A candidate for each match that removes something live at the peak, and why others are none."""
        for path, _ in reversed(peak.ops_around):
            block = _BlockCosts(graph, path, goal.chip)
            live = peak.live_in(path)
            results = list(self._matches(block, goal.options, prefer_memory=True))
            yield from (item for item in results if isinstance(item, Refusal))
            matches = [item for item in results if isinstance(item, Match)]
            alone = (_MatchSet((m,), m.removed) for m in matches)
            for match_set in (*alone, *block.match_sets(_outermost(matches))):
                saved = block.freed_bytes(match_set, live, peak) - sum(m.new_bytes for m in match_set.matches)
                if saved > 0:
                    yield self._candidate([(block, m) for m in match_set.matches], saved, prefer_memory=True)

    def _matches(self, block: _BlockCosts, options: Options, *, prefer_memory: bool) -> Iterator[Match | Refusal]:
        """All matches of a block in program order, and the refusals."""
        for op, match in _matched(block.graph, self, prefer_memory=prefer_memory):
            if isinstance(match, Match):
                match = self.why_not_on(block.graph, match, block.chip) or match
            reason = why_left_alone(block.main, block.path, match, options) if isinstance(match, Match) else ""
            if reason:
                yield block.refusal(op, "compared", reason)
            else:
                yield block.refusal(op, match.code, match.message) if isinstance(match, Blocked) else match

    def _candidate(self, chosen: Sequence[_BlockMatch], saved_bytes: int, *, prefer_memory: bool) -> Candidate:
        """One step for some matches, with the summary of the first of them."""
        block, first = chosen[0]
        more = f"; the same in {len(chosen) - 1} other place{'s' * (len(chosen) > 2)}" if len(chosen) > 1 else ""
        blocks = dict.fromkeys(b for b, _ in chosen)
        roots = tuple((b.path, match.root) for b, match in chosen)
        return Candidate(
            step=Step(self.name, "", Rewriting(roots=roots, prefer_memory=prefer_memory)),
            saved_bytes=saved_bytes,
            added_seconds=sum(b.added_seconds([m for other, m in chosen if other is b]) for b in blocks),
            numerics=weakest(match.numerics for _, match in chosen),
            summary=f"{first.summary}{more}",
            identity=(self.name, block.path, first.root, first.summary),
            refusal_if_useless=block.refusal(first.root, "no-gain", f"to {first.summary} does not lower the peak"),
            apply_to_copy=functools.partial(self._apply_to_copy, tuple(chosen)),
        )

    def describe(self, params: Rewriting) -> str:
        """The pass, and in how many places."""
        count = len(params.roots)
        return self.name if count == 1 else f"{self.name} in {count} places"

    def apply(self, module: ir.Module, params: Rewriting) -> None:
        """Replaces the ops of a step and removes what is dead afterwards, in place.

        Raises:
            ValueError: the step was not made for this module.
        """
        main = entry_graph(module)
        matches: list[tuple[Graph, Match]] = []
        for path, root in params.roots:
            graph = nested_graph(main, path)
            match = self.match(graph, root, prefer_memory=params.prefer_memory)
            if not isinstance(match, Match):
                raise ValueError(f"{self.name}: nothing to rewrite at op {root}")
            matches.append((graph, match))
        self._replace(module, matches)

    def _apply_to_copy(self, chosen: Sequence[_BlockMatch], copy: ir.Module, _: Rewriting) -> None:
        """Does the same to a copy of the module, where the matches are known."""
        main = graph_of_copy(chosen[0][0].main, copy)
        self._replace(copy, [(nested_graph(main, block.path), match) for block, match in chosen])

    def _replace(self, module: ir.Module, matches: Sequence[tuple[Graph, Match]]) -> None:
        for graph, _ in matches:
            self.before_edits(graph)
        # Backwards: a match may use the results of an earlier one, which are replaced after it.
        for graph, match in reversed(matches):
            handle = graph.handles[match.root]
            with building(handle, handle.location):
                results = self.emit(graph, match)
            for old, new in zip(match.replaced or graph.ops[match.root].results, results, strict=True):
                graph.mlir_values[old].replace_all_uses_with(new)
        self.clean(module)

    def clean(self, module: ir.Module) -> None:
        """Removes what is dead after the replacements."""
        block_cse(module)
        run_passes(module, "canonicalize")


def why_left_alone(main: Graph, path: Path, match: Match, options: Options) -> str:
    """Why a match must not be replaced, "" if it may: a float that it rounds is compared (`ir.float_comparisons`)."""
    if match.numerics == "exact" and all(kernel.matmul is None for kernel in match.kernels):
        return ""
    values = match.replaced or nested_graph(main, path).ops[match.root].results
    return why_rounded_alike(main, path, values, relaxed=allows(options, "relaxed"))


@cached_analysis
def _matched(graph: Graph, one: RewritingPass, *, prefer_memory: bool) -> tuple[tuple[int, Match | Blocked], ...]:
    """The ops at which a pass matches or says why it does not, in program order."""
    roots = [op.index for op in graph.ops if op.name in one.roots]
    matches = ((root, one.match(graph, root, prefer_memory=prefer_memory)) for root in roots)
    return tuple((root, match) for root, match in matches if match is not None)


@cached_analysis
def block_paths(graph: Graph) -> tuple[Path, ...]:
    """The paths of a block and of the bodies of the loops and branches in it; reducers and comparators are none."""
    controls = (op for op in graph.ops if CLASSES.get(op.name) is Class.CONTROL)
    inner = ((op.index, i, path) for op in controls for i, block in enumerate(op.blocks) for path in block_paths(block))
    return ((), *(((op, i), *path) for op, i, path in inner))


@dataclasses.dataclass(frozen=True)
class _MatchSet:
    """Matches that are taken together or not at all, and the ops that are dead after them."""

    matches: tuple[Match, ...]
    removed: tuple[int, ...]


class _BlockCosts:
    """A block of a module, and what its ops and matches cost on a chip."""

    def __init__(self, main: Graph, path: Path, chip: Chip):
        self.main, self.path, self.chip = main, path, chip
        self.graph = nested_graph(main, path)

    @functools.cached_property
    def seconds(self) -> tuple[float, ...]:
        """What each op costs in one run of the block. An op that the compiler hoists out of a loop runs once."""
        trips, hoisted = self.hoisted
        seconds = fused_seconds(self.graph, self.chip)
        return tuple(s / trips if i in hoisted else s for i, s in enumerate(seconds))

    @functools.cached_property
    def hoisted(self) -> tuple[int, frozenset[int]]:
        """The trip count of the loop whose body the block is, and the ops that run once, before it."""
        if not self.path or self.path[-1][1] != 1:
            return 1, frozenset()
        parent = nested_graph(self.main, self.path[:-1])
        loop = parent.ops[self.path[-1][0]]
        if loop.name != "stablehlo.while":
            return 1, frozenset()
        return max(1, likely_trips(parent, loop)), compiler_model(self.chip).hoisted_ops(self.graph)

    def added_seconds(self, matches: Sequence[Match]) -> float:
        """What matches add, or save, in all runs of the block."""
        removed = {op for one in (*matches, *self.match_sets(matches)) for op in one.removed}
        each_run = sum(map(self.new_seconds, matches)) - sum(self.seconds[op] for op in removed)
        return block_runs(self.main, self.path) * each_run

    def new_seconds(self, match: Match) -> float:
        """What a replacement costs in one run of the block; that of a hoisted op runs once, as the op does."""
        trips, hoisted = self.hoisted
        seconds = sum(self._kernel_seconds(kernel) for kernel in match.kernels)
        return seconds / trips if match.root in hoisted else seconds

    def _kernel_seconds(self, kernel: Kernel) -> float:
        if kernel.moves is not None:
            kernel = dataclasses.replace(kernel, nbytes=op_bytes(self.graph, kernel.moves, self.chip))
        return kernel.seconds(self.chip)

    def match_sets(self, matches: Sequence[Match]) -> list[_MatchSet]:
        """The sets of several matches that are connected by shared inputs."""
        sets: dict[int, list[Match]] = {}
        set_of: dict[int, int] = {}
        for number, match in enumerate(m for m in matches if m.shared_inputs):
            joined = sorted({set_of[v] for v in match.shared_inputs if v in set_of}, key=lambda s: len(sets[s]))
            largest = joined.pop() if joined else number
            added = [match, *(m for s in joined for m in sets.pop(s))]
            sets[largest] = [*sets.pop(largest, ()), *added]
            set_of.update((v, largest) for m in added for v in m.shared_inputs)
        return [self._match_set(sorted(s, key=lambda m: m.root)) for s in sets.values() if len(s) > 1]

    def _match_set(self, matches: Sequence[Match]) -> _MatchSet:
        inputs = {v for m in matches for v in m.shared_inputs}
        first, *others = (m.root for m in matches)
        return _MatchSet(tuple(matches), needed_only_by(self.graph, first, inputs, *others))

    def paying(self, matches: Sequence[Match], anyway: Set[int]) -> list[Match]:
        """The matches that save time, alone or with the others of their set, and those that need not: their roots."""
        gains = {m.root: self._saved_seconds(_MatchSet((m,), m.removed)) for m in matches}
        paying = {root for root, gain in gains.items() if gain > 0}
        for match_set in self.match_sets(matches):
            roots = {m.root for m in match_set.matches}
            if self._saved_seconds(match_set) > sum(gains[root] for root in roots & paying):
                paying |= roots
        return [m for m in matches if m.root in paying | anyway]

    def _saved_seconds(self, match_set: _MatchSet) -> float:
        """Seconds saved, 0 where they are too few to be sure."""
        new = sum(map(self.new_seconds, match_set.matches))
        old = sum(self.seconds[op] for op in match_set.removed)
        return old - new if new < _WORTHWHILE_SHARE * old else 0.0

    def freed_bytes(self, match_set: _MatchSet, live: dict[int, int], peak: Peak) -> int:
        """Bytes at the peak of the values, and of the scratch, that a set does away with."""
        results = {v for m in match_set.matches for v in m.replaced or self.graph.ops[m.root].results}
        dead = {v for op in match_set.removed for v in self.graph.ops[op].results} - results
        return sum(live[v] for v in dead & live.keys()) + peak.scratch_bytes(self.path, match_set.removed)

    def refusal(self, op: int, code: str, message: str) -> Refusal:
        return Refusal.of_value(self.main, self.path, self.graph.ops[op].results[0], code, message)


_BlockMatch = tuple[_BlockCosts, Match]


def _outermost(matches: Sequence[Match]) -> list[Match]:
    """The matches whose ops no later one of them removes: of nested ones the outermost."""
    taken: set[int] = set()
    outermost: list[Match] = []
    for match in reversed(matches):
        if taken.isdisjoint(match.removed):
            outermost.append(match)
            taken.update(match.removed)
    return outermost[::-1]
