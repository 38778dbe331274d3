"""What each pass and each optional part of the search buys: results/ablation.json, and a table in docs/design.md.

Static searches, nothing compiled, with everything and then without one pass or part: goals lost, estimated time, and
the CPU time of planning. A pass that offers no candidate in a search with everything does not change that search, nor
does a part that finds nothing: the search is not repeated, and what they took to look is what leaving them out saves.

`--report PART` prints the searches that a part changes.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import math
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any
from unittest import mock

import jax
import record
import searches
import tables
import user_programs
import user_science

from stablehlo_mem.frontend.canonicalize import canonicalize
from stablehlo_mem.frontend.program import ingest
from stablehlo_mem.pass_api.candidate import Candidate, Goal, Options
from stablehlo_mem.passes import PASSES
from stablehlo_mem.planner import discrepancy_search, evaluator, greedy_search
from stablehlo_mem.planner.discrepancy_search import DiscrepancySearch
from stablehlo_mem.planner.evaluator import Evaluator
from stablehlo_mem.sharding_rules import registry
from stablehlo_mem.splitting import candidates
from stablehlo_mem.targets.target import Target, named_targets
from stablehlo_mem.utils import gc_pause

PATH = record.RESULTS / "ablation.json"
SHARES = {"25%": 0.25, "10%": 0.1}
FUZZED = 20
MAX_SECONDS = 2.0
"""Programs whose searches for a target take longer, in CPU time, are left out: each is searched some twenty times."""
MAX_SLOWDOWN = Options().max_slowdown
assert MAX_SLOWDOWN is not None
PASS_NAMES = tuple(one.name for one in PASSES)
Row = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Part:
    """Something that can be left out: functions, and what stands in for them.

    Attributes:
        ops: it concerns the rules of these ops and no function.
    """

    owner: Any = None
    names: tuple[str, ...] = ()
    instead: Callable[..., Any] = lambda *_, **__: ()
    ops: tuple[str, ...] = ()

    @contextlib.contextmanager
    def left_out(self) -> Generator[None]:
        with contextlib.ExitStack() as stack:
            for name in self.names:
                stack.enter_context(mock.patch.object(self.owner, name, self.instead))
            rules = {name: rule for name, rule in registry.OP_RULES.items() if name not in self.ops}
            stack.enter_context(mock.patch.object(registry, "OP_RULES", rules))
            yield


PARTS: dict[str, Part] = {
    **{one.name: Part(one, ("propose", "cheapen")) for one in PASSES},
    "time-saving steps before the search": Part(evaluator, ("cheapen",), lambda state, *_, **__: state),
    "time-saving steps after each step": Part(greedy_search, ("with_enabled_savings",), lambda state, _: state),
    "enabling steps, with look-ahead": Part(
        greedy_search, ("_enabling_step",), lambda state, enabling, goal, otherwise: otherwise
    ),
    "splits of small values": Part(greedy_search, ("_with_small_values",), lambda *_: []),
    "other first steps": Part(DiscrepancySearch, ("begin_otherwise",)),
    "other first steps, in their fastest size": Part(discrepancy_search, ("_in_fastest_size",), lambda *_: None),
    "first steps towards smaller goals": Part(discrepancy_search, ("_smaller_goals",)),
    "departures at the dearest step": Part(DiscrepancySearch, ("depart_at_dearest",)),
    "the smallest size alone": Part(DiscrepancySearch, ("take_smallest",)),
    "steps into the cache": Part(discrepancy_search, ("faster_step",), lambda *_: None),
    "like places in one step": Part(candidates, ("like_places",)),
    "online reductions": Part(candidates._Proposals, ("online",), lambda *_: None),
    "saved values": Part(candidates, ("worth_saving",)),
    "rules of windows": Part(ops=("stablehlo.convolution", "stablehlo.reduce_window", "stablehlo.select_and_scatter")),
    "rules of gather and scatter": Part(ops=("stablehlo.gather", "stablehlo.scatter")),
    "rules of while and case": Part(ops=("stablehlo.while", "stablehlo.case", "stablehlo.if")),
}
"""The passes, and the parts of the search that can be left out."""


@dataclasses.dataclass
class Watch:
    """What the parts do in a search with everything: whether each finds something, and the CPU time that it takes."""

    finds: set[str] = dataclasses.field(default_factory=set)
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    visits: int = 0

    @contextlib.contextmanager
    def on(self) -> Generator[None]:
        with contextlib.ExitStack() as stack:
            visited = DiscrepancySearch.visit
            stack.enter_context(mock.patch.object(DiscrepancySearch, "visit", self.counted(visited)))
            for title, part in PARTS.items():
                for name in part.names:
                    original = getattr(part.owner, name)
                    watched = self.watched(title, original, part.instead)
                    stack.enter_context(mock.patch.object(part.owner, name, watched))
            yield

    def counted(self, visit: Callable[..., None]) -> Callable[..., None]:
        def counting(*arguments: Any) -> None:
            self.visits += 1
            visit(*arguments)

        return counting

    def watched(self, title: str, original: Callable[..., Any], instead: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def watching(*given: Any, **named: Any) -> Any:
            started, visits = time.process_time(), self.visits
            found = original(*given, **named)
            if isinstance(found, Iterator):
                found = self.items(title, found)
            else:
                otherwise = instead(*given, **named)
                if self.visits > visits or (found is not otherwise and (found or otherwise)):
                    self.finds.add(title)
            self.seconds[title] = self.seconds.get(title, 0.0) + time.process_time() - started
            return found

        return watching

    def items(self, title: str, found: Iterator[Any]) -> Iterator[Any]:
        """What a generator yields; of what passes yield, refusals change no search."""
        while True:
            started = time.process_time()
            item = next(found, None)
            self.seconds[title] = self.seconds.get(title, 0.0) + time.process_time() - started
            if item is None:
                return
            if isinstance(item, Candidate) or title not in PASS_NAMES:
                self.finds.add(title)
            yield item


def programs() -> Iterator[tuple[str, Callable[[str], Any]]]:
    """Names, and functions that export for a platform."""
    for name, export in searches.programs():
        kind, _, rest = name.partition(": ")
        if kind in ("suite", "training") or (kind == "fuzz" and int(rest) < FUZZED):
            yield name, export
    for name, make in {**user_programs.PROGRAMS, **user_science.PROGRAMS}.items():
        yield f"user: {name}", functools.partial(_user_program, make)


def _user_program(make: Callable[[], user_programs.Made], platform: str) -> Any:
    function, arguments = make()
    leaves, tree = jax.tree.flatten(arguments)
    flat = jax.jit(lambda *leaves: jax.tree.leaves(function(*jax.tree.unflatten(tree, leaves))))
    return jax.export.export(flat, platforms=[platform])(*leaves)


class _Planner(Evaluator):
    """One that is out of time after so much CPU time."""

    until = math.inf

    @property
    def is_out_of_time(self) -> bool:
        return time.process_time() > self.until


@gc_pause.rare()
def searched(exported: Any, target: Target, max_seconds: float = math.inf) -> dict[str, Row] | None:
    """What the searches of a program for a target come to, by share of its temporaries; None if they take too long."""
    planner = _Planner(ingest(exported), (target,), Options(), any_peak=False, max_slowdown=MAX_SLOWDOWN)
    planner.until = time.process_time() + max_seconds
    canonicalize(planner.canonical)
    original = planner.original_state(target.chip)
    rows: dict[str, Row] = {}
    for share, part in SHARES.items():
        started = time.process_time()
        goal = Goal(target.chip, planner.options, int(part * original.peak.temp_bytes))
        state, reached = original, False
        for form in planner.distinct_forms(target.chip):
            state, _ = planner.search(form, goal)
            reached = state.peak.temp_bytes <= goal.temp_bytes and not planner.is_slow(state)
            if reached or planner.is_out_of_time:
                break
        slowdown = state.seconds / original.seconds if original.seconds > 0 else 1.0
        passes = [step.pass_name for step in state.steps]
        seconds = round(time.process_time() - started, 4)
        rows[share] = {"reached": reached, "slowdown": slowdown, "seconds": seconds, "passes": passes}
    return None if planner.is_out_of_time else rows


def ablated(name: str, exported: Any, target: Target) -> dict[str, Row]:
    """The rows of a program on a target, by its name, target and share; none if they take too long.

    Each says what the search with everything comes to, how those that differ do, and the seconds that each part takes.
    """
    searched(exported, target, MAX_SECONDS)  # what a process makes once is there for all that follow
    if searched(exported, target, MAX_SECONDS) is None:
        return {}
    watch = Watch()
    with watch.on():
        searched(exported, target)
    everything = searched(exported, target)
    assert everything is not None
    rows: dict[str, Row] = {share: {**row, "without": {}, "spared": {}} for share, row in everything.items()}
    text = exported.mlir_module()
    for title, part in PARTS.items():
        finds, looked = title in watch.finds or any(op in text for op in part.ops), watch.seconds.get(title, 0.0)
        with part.left_out():
            found = searched(exported, target) if finds else everything
        assert found is not None
        for share, row in rows.items():
            less = found[share]
            spared = round(row["seconds"] - less["seconds"] if finds else looked / len(SHARES), 3)
            row["spared"] |= {title: spared} if spared else {}
            changed = {key: less[key] for key in ("reached", "slowdown")}
            if changed != {key: row[key] for key in changed}:
                row["without"][title] = changed
    return {f"{name}, {target.name}, {share}": row for share, row in rows.items()}


def summary(rows: dict[str, Row], title: str) -> Row:
    """What leaving out one part does to all searches."""
    reach = {key: (row["reached"], _without(row, title)["reached"]) for key, row in rows.items()}
    ratios = {key: _ratio(row, title) for key, row in rows.items() if all(reach[key])}
    worst = max(ratios, key=ratios.__getitem__)
    seconds = sum(row["seconds"] for row in rows.values())
    return {
        "used": sum(title in row["passes"] for row in rows.values()),
        "lost": sum(both == (True, False) for both in reach.values()),
        "won": sum(both == (False, True) for both in reach.values()),
        "slower": sum(ratio > 1.02 for ratio in ratios.values()),
        "faster": sum(ratio < 0.98 for ratio in ratios.values()),
        "mean": math.exp(sum(map(math.log, ratios.values())) / len(ratios)),
        "worst": ratios[worst],
        "spared": sum(row["spared"].get(title, 0.0) for row in rows.values()) / seconds,
    }


def _without(row: Row, title: str) -> Row:
    return row["without"].get(title, row)


def _ratio(row: Row, title: str) -> float:
    """Estimated time without a part over that with it."""
    return _without(row, title)["slowdown"] / row["slowdown"] if row["slowdown"] > 0 else 1.0


def table(data: dict[str, Any]) -> str:
    """A line for each part that changes some search, what buys most first."""
    found = {title: summary(data["rows"], title) for title in data["parts"] if title in PARTS}
    changing = [title for title in found if any(found[title][key] for key in ("lost", "won", "slower", "faster"))]
    changing.sort(key=lambda title: (-found[title]["lost"], -found[title]["mean"], title))
    names = ["left out", "steps in", "goals lost", "won", "slower", "faster", "time, mean", "worst", "planning spared"]
    lines = [_cells(title, found[title]) for title in changing]
    count = len({key.rsplit(", ", 1)[0] for key in data["rows"]})
    note = (
        f"{len(data['rows'])} searches: {count} programs and targets, at {' and '.join(SHARES)} of their static "
        f"temporaries; {len(data['left_out'])} others take some {MAX_SECONDS:g} s or more to search and are left out. "
        "Steps in: plans with everything in which the pass has a step. Slower, faster: plans by more than 2% by our "
        "estimate, where both reach the goal; time is theirs over that with everything. Planning: CPU time. "
        f"No plan changes so much without {', '.join(title for title in found if title not in changing)}"
    )
    return f"{tables.table(names, lines)}\n{note}. {tables.stamp(data)}.\n"


def _cells(title: str, row: Row) -> list[str]:
    used = str(row["used"]) if title in PASS_NAMES else ""
    counts = [str(row[key]) for key in ("lost", "won", "slower", "faster")]
    return [title, used, *counts, f"{row['mean']:.3f}", f"{row['worst']:.2f}", f"{round(row['spared'], 2) + 0.0:.0%}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", nargs="+", help="those whose names begin so")
    parser.add_argument("--report", choices=list(PARTS), metavar="PART")
    arguments = parser.parse_args()
    data = record.earlier(PATH)
    if arguments.report:
        report(data["rows"], arguments.report)
        return
    rows, left_out = data.get("rows", {}), set(data.get("left_out", []))
    for name, export in programs():
        if arguments.programs and not name.startswith(tuple(arguments.programs)):
            continue
        for target in named_targets(searches.TARGETS):
            found, title = ablated(name, export(target.platform), target), f"{name}, {target.name}"
            rows |= found
            left_out = left_out - {title} if found else left_out | {title}
            record.write({**record.header(), "left_out": sorted(left_out), "parts": list(PARTS), "rows": rows}, PATH)
            print(title, "" if found else "left out", flush=True)


def report(rows: dict[str, Row], title: str) -> None:
    for key, row in rows.items():
        if title in row["without"]:
            print(f"{_ratio(row, title):.3f} {key}: {row['slowdown']:.3f} {row['passes']} {row['without'][title]}")


if __name__ == "__main__":
    main()
