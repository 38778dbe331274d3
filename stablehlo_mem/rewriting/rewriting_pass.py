"""What the passes that put a cheaper form in an op's place share: where to look, what it saves, how it is put in.

A pass matches at a root op and emits the new form. A place is named by its block and the root's index, so that a step
is plain data; it is matched again when it is applied.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any

from stablehlo_mem.analysis.cost_model import Kernel, fused_seconds, op_bytes
from stablehlo_mem.analysis.fusion_classes import CLASSES, Class
from stablehlo_mem.analysis.loop_invariants import invariant_ops
from stablehlo_mem.analysis.peak_memory import Peak
from stablehlo_mem.ir.analysis_cache import cached_analysis
from stablehlo_mem.ir.bindings import ir, run_passes
from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.ir.builders import building
from stablehlo_mem.ir.dead_ops import needed_only_by
from stablehlo_mem.ir.float_comparisons import COMPARED, decides
from stablehlo_mem.ir.graph import Graph, Path, entry_graph, graph_of_copy, nested_graph, op_id
from stablehlo_mem.ir.trip_count import block_runs, likely_trips
from stablehlo_mem.pass_api.candidate import Candidate, Goal, Numerics, Refusal, Step, StepParams, allows, weakest
from stablehlo_mem.pass_api.pass_protocol import Pass
from stablehlo_mem.targets.chips import Chip

_WORTH = 0.95
"""A form that is to save time takes at most this share of it: nearer than that the estimates tell nothing apart."""
_MAX_ALONE = 8
"""Places that are tried one by one where all at once will not do."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Match:
    """One place where a cheaper form fits.

    Attributes:
        root: the op whose results are replaced. The new form is built before it.
        removed: the ops that nobody needs afterwards, the root among them: see `needed_only_by`.
        new_bytes: of the new form's intermediates that are alive at once; its results are not counted.
        kernels: what the new form costs.
        numerics: the weakest `Options.numerics` that allows it.
        what: the new form in a few words, for people: "contract f32[8,8] with f32[8,4]".
        detail: what `emit` needs; it never leaves the pass.
        replaced: the values replaced, where they are not the root's results: all that is used of them, say.
        kept: the values the new form reads, if matches that read one in common are to be weighed together too: what
            they share is spared only if all of them are taken.
        always: the new form is put in also where it saves no time: it lets other passes see what compilers do.
    """

    root: int
    removed: tuple[int, ...]
    new_bytes: int
    kernels: tuple[Kernel, ...]
    numerics: Numerics
    what: str
    detail: Any = None
    replaced: tuple[int, ...] = ()
    kept: tuple[int, ...] = ()
    always: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rewriting(StepParams):
    """Where the cheaper form is put in.

    Attributes:
        sites: of each root the path of its block, from the entry function's, and the op in it.
        prefer_memory: which form is put in: see `RewritingPass.match`.
    """

    sites: tuple[tuple[Path, int], ...]
    prefer_memory: bool


class RewritingPass(Pass[Rewriting]):
    """A pass that replaces ops by a cheaper form. Subclasses have a `name` and `roots`, and match and emit."""

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
        """Builds the new form at the insertion point, before the root, and returns what replaces the values."""

    def cheapen(self, graph: Graph, goal: Goal) -> Iterator[Candidate]:
        """All the places, in every block, where the new form saves time, in one step; then each by itself."""
        found: list[_Place] = []
        for path in block_paths(graph):
            block = _Block(graph, path, goal.chip)
            matches = [m for m in self._matches(block, prefer_memory=goal.prefer_memory) if isinstance(m, Match)]
            matches = _disjoint([m for m in matches if allows(goal.options, m.numerics)])
            found += [_Place(block, m) for m in block.paying(matches)]
        if found:
            yield self._candidate(found, 0, prefer_memory=goal.prefer_memory)
        if len(found) > 1:
            yield from (self._candidate([place], 0, prefer_memory=goal.prefer_memory) for place in found[:_MAX_ALONE])

    def propose(self, graph: Graph, peak: Peak, goal: Goal) -> Iterator[Candidate | Refusal]:
        """A candidate for each match that removes something live at the peak, and why others are none."""
        if goal.include_small_values:
            return  # a match reaches as far as it does
        for depth in range(len(peak.path), -1, -1):
            block = _Block(graph, peak.path[:depth], goal.chip)
            live = {item.value: item.nbytes for item in peak.live if item.path == block.path}
            found = list(self._matches(block, prefer_memory=True))
            yield from (item for item in found if isinstance(item, Refusal))
            matches = [item for item in found if isinstance(item, Match)]
            for group in (*(_Group((m,), m.removed) for m in matches), *block.groups(_disjoint(matches))):
                saved = block.spared_bytes(group, live, peak) - sum(m.new_bytes for m in group.matches)
                first = group.matches[0]
                if saved > 0 and allows(goal.options, first.numerics):
                    yield self._candidate([_Place(block, m) for m in group.matches], saved, prefer_memory=True)
                elif saved > 0:
                    message = f"it could {first.what} with Options(numerics={first.numerics!r})"
                    yield block.refusal(first.root, f"needs-{first.numerics}", message)

    def _matches(self, block: _Block, *, prefer_memory: bool) -> Iterator[Match | Refusal]:
        """All matches of a block in program order, and the refusals."""
        for op, match in _matched(block.graph, self, prefer_memory=prefer_memory):
            if isinstance(match, Match) and unsettles(block.main, block.path, match):
                yield block.refusal(op, "compared", COMPARED)
            else:
                yield block.refusal(op, match.code, match.message) if isinstance(match, Blocked) else match

    def _candidate(self, places: Sequence[_Place], saved_bytes: int, *, prefer_memory: bool) -> Candidate:
        """One step for all the places, called after the first of them."""
        block, first = places[0].block, places[0].match
        more = f" and {len(places) - 1} more" if len(places) > 1 else ""
        numerics = weakest(place.match.numerics for place in places)
        blocks = dict.fromkeys(place.block for place in places)
        sites = tuple((place.block.path, place.match.root) for place in places)
        return Candidate(
            step=Step(self.name, "", Rewriting(sites=sites, prefer_memory=prefer_memory)),
            saved_bytes=saved_bytes,
            added_seconds=sum(b.added_seconds([p.match for p in places if p.block is b]) for b in blocks),
            numerics=numerics,
            summary=f"{first.what}{more}",
            identity=(self.name, block.path, first.root, first.what),
            refusal_if_useless=block.refusal(first.root, "no-gain", f"to {first.what} does not lower the peak"),
            apply_to_copy=functools.partial(self._edit_copy, tuple(places)),
        )

    def describe(self, params: Rewriting) -> str:
        """The pass, and in how many places."""
        count = len(params.sites)
        return self.name if count == 1 else f"{self.name} in {count} places"

    def apply(self, module: ir.Module, params: Rewriting) -> None:
        """Puts the new form in each place and removes what nobody needs any longer, in place.

        Raises:
            ValueError: the step was not made for this module.
        """
        main = entry_graph(module)
        found: list[tuple[Graph, Match]] = []
        for path, root in params.sites:
            graph = nested_graph(main, path)
            match = self.match(graph, root, prefer_memory=params.prefer_memory)
            if not isinstance(match, Match):
                raise ValueError(f"{self.name}: nothing to rewrite at op {root}")
            found.append((graph, match))
        self._replace(module, found)

    def _edit_copy(self, places: Sequence[_Place], copy: ir.Module, params: Rewriting) -> None:
        """Does the same to a copy of the module, where the matches are known."""
        del params
        main = graph_of_copy(places[0].block.main, copy)
        self._replace(copy, [(nested_graph(main, place.block.path), place.match) for place in places])

    def _replace(self, module: ir.Module, found: Sequence[tuple[Graph, Match]]) -> None:
        # Backwards: a match may use the results of an earlier one, which are replaced after it.
        for graph, match in reversed(found):
            handle = graph.handles[match.root]
            with building(handle, handle.location):
                results = self.emit(graph, match)
            for old, new in zip(match.replaced or graph.ops[match.root].results, results, strict=True):
                graph.mlir_values[old].replace_all_uses_with(new)
        run_passes(module, "cse", "canonicalize")


def unsettles(main: Graph, path: Path, match: Match) -> bool:
    """Whether a match rounds otherwise what is compared with floats that are computed elsewhere: see `comparisons`."""
    if match.numerics == "exact" and all(kernel.matmul is None for kernel in match.kernels):
        return False
    values = match.replaced or nested_graph(main, path).ops[match.root].results
    return decides(main, path, values)


@cached_analysis
def _matched(graph: Graph, one: RewritingPass, *, prefer_memory: bool) -> tuple[tuple[int, Match | Blocked], ...]:
    """The ops at which a pass matches or says why it does not, in program order."""
    roots = [op.index for op in graph.ops if op.name in one.roots]
    found = [(root, one.match(graph, root, prefer_memory=prefer_memory)) for root in roots]
    return tuple((root, match) for root, match in found if match is not None)


@cached_analysis
def block_paths(graph: Graph) -> tuple[Path, ...]:
    """The paths of a block and of the bodies of the loops and branches in it; reducers and comparators are none."""
    controls = (op for op in graph.ops if CLASSES.get(op.name) is Class.CONTROL)
    inner = ((op.index, i, path) for op in controls for i, block in enumerate(op.blocks) for path in block_paths(block))
    return ((), *(((op, i), *path) for op, i, path in inner))


@dataclasses.dataclass(frozen=True)
class _Group:
    """Matches that are taken together or not at all, and the ops that nobody needs after them."""

    matches: tuple[Match, ...]
    removed: tuple[int, ...]


class _Block:
    """A block of a module, and what its ops cost on a chip."""

    def __init__(self, main: Graph, path: Path, chip: Chip):
        self.main, self.path, self.chip = main, path, chip
        self.graph = nested_graph(main, path)

    @functools.cached_property
    def seconds(self) -> tuple[float, ...]:
        """What each op costs in one run. Compilers take what no iteration changes out of a loop: it is run once."""
        seconds = fused_seconds(self.graph, self.chip)
        trips, once = self.invariant
        return tuple(s / trips if i in once else s for i, s in enumerate(seconds))

    @functools.cached_property
    def invariant(self) -> tuple[int, frozenset[int]]:
        """How often a loop's body runs, and the ops in it that compute the same every time."""
        if not self.path or self.path[-1][1] != 1:
            return 1, frozenset()
        parent = nested_graph(self.main, self.path[:-1])
        loop = parent.ops[self.path[-1][0]]
        if loop.name != "stablehlo.while":
            return 1, frozenset()
        return max(1, likely_trips(parent, loop)), invariant_ops(self.graph)

    def added_seconds(self, matches: Sequence[Match]) -> float:
        """What matches add, or save, in all runs of the block."""
        removed = {op for m in matches for op in m.removed}.union(*(g.removed for g in self.groups(matches)))
        once = sum(map(self.new_seconds, matches)) - sum(self.seconds[op] for op in removed)
        return block_runs(self.main, self.path) * once

    def new_seconds(self, match: Match) -> float:
        """What a match costs in one run: what takes the place of what is run once is run once too."""
        trips, once = self.invariant
        seconds = sum(self._as_laid_out(kernel).seconds(self.chip) for kernel in match.kernels)
        return seconds / trips if match.root in once else seconds

    def _as_laid_out(self, kernel: Kernel) -> Kernel:
        if kernel.moves is None:
            return kernel
        return dataclasses.replace(kernel, nbytes=op_bytes(self.graph, kernel.moves, self.chip))

    def groups(self, matches: Sequence[Match]) -> list[_Group]:
        """The matches that read values in common, where there are several."""
        groups: dict[int, list[Match]] = {}
        group_of: dict[int, int] = {}
        for number, match in enumerate(m for m in matches if m.kept):
            joined = sorted({group_of[v] for v in match.kept if v in group_of}, key=lambda g: len(groups[g]))
            stays = joined.pop() if joined else number
            added = [match, *(m for g in joined for m in groups.pop(g))]
            group = groups.pop(stays, [])
            group += added
            groups[stays] = group
            group_of.update((v, stays) for m in added for v in m.kept)
        return [self._group(sorted(g, key=lambda m: m.root)) for g in groups.values() if len(g) > 1]

    def _group(self, matches: Sequence[Match]) -> _Group:
        kept = {v for m in matches for v in m.kept}
        first, *others = (m.root for m in matches)
        return _Group(tuple(matches), needed_only_by(self.graph, first, kept, *others))

    def paying(self, matches: Sequence[Match]) -> list[Match]:
        """The matches that save time, alone or with the others of their group, and those that need not."""
        gains = {m.root: self._gain(_Group((m,), m.removed)) for m in matches}
        taken = {root for root, gain in gains.items() if gain > 0}
        for group in self.groups(matches):
            roots = {m.root for m in group.matches}
            if self._gain(group) > sum(gains[root] for root in roots & taken):
                taken |= roots
        return [m for m in matches if m.always or m.root in taken]

    def _gain(self, group: _Group) -> float:
        """Seconds saved, 0 where the estimates tell nothing apart."""
        new = sum(map(self.new_seconds, group.matches))
        old = sum(self.seconds[op] for op in group.removed)
        return old - new if new < _WORTH * old else 0.0

    def spared_bytes(self, group: _Group, live: dict[int, int], peak: Peak) -> int:
        """Bytes at the peak that a group does away with, the scratch of an op among them."""
        results = {v for m in group.matches for v in m.replaced or self.graph.ops[m.root].results}
        gone = {v for op in group.removed for v in self.graph.ops[op].results} - results
        return sum(live[v] for v in gone & live.keys()) + peak.scratch_bytes(self.path, group.removed)

    def refusal(self, op: int, code: str, message: str) -> Refusal:
        value = self.graph.values[self.graph.ops[op].results[0]]
        name = self.graph.ops[op].name.split(".")[-1]
        return Refusal(
            op=op_id(self.main, self.path, op),
            value=f"{name} {value}",
            nbytes=value.nbytes,
            dimension=-1,
            code=code,
            message=message,
            location=self.graph.source(op),
        )


@dataclasses.dataclass(frozen=True)
class _Place:
    block: _Block
    match: Match


def _disjoint(matches: Sequence[Match]) -> list[Match]:
    """The matches whose ops no later one of them removes: of nested ones the outermost."""
    taken: set[int] = set()
    kept: list[Match] = []
    for match in reversed(matches):
        if taken.isdisjoint(match.removed):
            kept.insert(0, match)
            taken.update(match.removed)
    return kept
