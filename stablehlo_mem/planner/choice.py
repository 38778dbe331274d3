"""Which of several candidates a descent takes, and in which size. `planner.greedy_search` and its departures ask it."""

from __future__ import annotations

import logging
import math

from stablehlo_mem.analysis.live_ranges import Peak
from stablehlo_mem.errors import PassError
from stablehlo_mem.pass_api.candidate import CHUNK_SHARE, Candidate, Goal
from stablehlo_mem.planner.search_state import SearchState, apply

_log = logging.getLogger(__name__)

_MAX_SIZES_TRIED = 4
"""Sizes of a candidate that are applied and profiled: the profile in one size usually tells the best one."""
_SIMILAR_PEAK = 1.25
"""If no candidate reaches the goal, those with a peak of up to this many times the lowest are compared by time ..."""
_SIMILAR_SAVING = 0.5
"""... if they save at least this share of what that one does: where none saves much, the fastest saves next to nothing,
and a descent has as many steps (chosen)."""


def try_apply(state: SearchState, candidate: Candidate, goal: Goal) -> SearchState | None:
    """The state after a candidate; None if its pass fails, which is a bug and logged at debug level."""
    try:
        return apply(state, candidate, goal)
    except PassError as error:
        _log.debug("left alone: %s: %s", candidate.summary, " ".join(str(error).split()), extra={"failure": error})
        return None


def reaches(state: SearchState | None, goal: Goal) -> bool:
    """Whether a state has the goal's peak at most and is not too slow."""
    return state is not None and state.peak.temp_bytes <= goal.temp_bytes and state.seconds <= goal.max_seconds


def lower_of(one: SearchState | None, other: SearchState | None, goal: Goal) -> SearchState | None:
    """The state of the lower peak, one that is too slow only if both are; the first if they are equal."""
    if one is None or other is None:
        return one or other
    return min(one, other, key=lambda s: (s.seconds > goal.max_seconds, s.peak.temp_bytes))


def best_of(
    state: SearchState,
    candidates: list[Candidate],
    goal: Goal,
    otherwise: SearchState | None = None,
    *,
    limit: float = math.inf,
) -> SearchState | None:
    """The state after the first candidate that reaches the goal and is not too slow.

    If none does, it is the fastest of those that come near, `otherwise` among them, and one that is too slow only if
    all are. What is not estimated to be one of these in any size is not tried, nor what is beyond the limit in all.
    """
    tried = [otherwise] if otherwise is not None else []

    def seconds_with(candidate: Candidate) -> float:
        fastest = candidate.sizes[0] if candidate.sizes else candidate
        return state.seconds + fastest.added_seconds

    def is_too_slow(candidate: Candidate) -> bool:
        return seconds_with(candidate) > goal.max_seconds

    def is_near(candidate: Candidate, other: SearchState) -> bool:
        most_saved = max((size.saved_bytes for size in candidate.sizes), default=candidate.saved_bytes)
        return state.peak.temp_bytes - most_saved <= _SIMILAR_PEAK * other.peak.temp_bytes

    for candidate in sorted((c for c in candidates if seconds_with(c) <= limit), key=is_too_slow):
        lowest = _lowest(tried, goal)
        if lowest is not None and (is_too_slow(candidate) or not is_near(candidate, lowest)):
            continue
        new = in_best_size(state, candidate, goal)
        if reaches(new, goal):
            return new
        tried += [new] if new is not None else []
    return _fastest_near(state, tried, goal)


def _fastest_near(before: SearchState, tried: list[SearchState], goal: Goal) -> SearchState | None:
    """The fastest of the states whose peak is similar to the lowest; one that is too slow only if all are."""
    lowest = _lowest(tried, goal) or min(tried, key=lambda s: s.peak.temp_bytes, default=None)
    if lowest is None:
        return None
    least, saved = lowest.peak.temp_bytes, before.peak.temp_bytes - lowest.peak.temp_bytes
    limit = min(_SIMILAR_PEAK * least, least + (1 - _SIMILAR_SAVING) * saved)
    near = [s for s in tried if s.peak.temp_bytes <= limit]
    return min(near, key=lambda s: (s.seconds, s.peak.temp_bytes))


def _lowest(tried: list[SearchState], goal: Goal) -> SearchState | None:
    """The state of the lowest peak that is not too slow; of no other is the time estimated, which takes long."""
    in_order = sorted(tried, key=lambda s: s.peak.temp_bytes)
    return next((s for s in in_order if s.seconds <= goal.max_seconds), None)


def in_best_size(state: SearchState, candidate: Candidate, goal: Goal) -> SearchState | None:
    """The state after a candidate in the fastest size that reaches the goal; None if it does not lower the peak."""
    best: SearchState | None = None
    if state.seconds + candidate.added_seconds > goal.max_seconds:
        candidate = in_smallest_size(candidate, state, goal.max_seconds) or candidate
    tried: list[object] = []
    for _ in range(_MAX_SIZES_TRIED):
        new = try_apply(state, candidate, goal)
        tried.append(candidate.step.params.size)
        if new is None:
            return None
        if best is not None and not _size_improves(new, best, state, goal):
            break
        best = new
        # What the profile sees of a size that was tried is not what another size's leads to expect.
        others = _resized(candidate, new.peak, state.peak, goal), _next_faster(candidate, new, goal)
        untried = [c for c in others if c is not None and c.step.params.size not in tried]
        if not untried:
            break
        candidate = untried[0]
    return best if best is not None and helps(best, state) else None


def in_smallest_size(candidate: Candidate, state: SearchState, max_seconds: float = math.inf) -> Candidate | None:
    """The candidate in the size that saves most of those after which the program is estimated to take so long at most.

    None if it has no such size.
    """
    sizes = (size for size in candidate.sizes if state.seconds + size.added_seconds <= max_seconds)
    smallest = max(sizes, key=lambda size: size.saved_bytes, default=None)
    return candidate.resized(smallest) if smallest else None


def helps(new: SearchState, state: SearchState) -> bool:
    """Whether a step lowers the peak, or keeps it with other values live there."""
    before, after = state.peak, new.peak
    return after.temp_bytes < before.temp_bytes or (after.temp_bytes == before.temp_bytes and after.live != before.live)


def _resized(candidate: Candidate, peak: Peak, before: Peak, goal: Goal) -> Candidate | None:
    """The candidate in the size that should be best, given the peak in its present size; None if that is the best.

    It is the fastest size that reaches the goal if chunks have the estimated bytes. If none does, it is the fastest
    whose chunk is smaller by the ratio of the peak to the goal, or takes its share of the goal, unless the peak is
    higher than before: then the chunk is what is too large.
    """
    if not candidate.sizes:
        return None
    needed = candidate.saved_bytes + peak.temp_bytes - goal.temp_bytes
    size = next((s for s in candidate.sizes if s.saved_bytes >= needed), None)
    if size is None:
        all_saved = max(s.saved_bytes for s in candidate.sizes)
        allowed = (all_saved - candidate.saved_bytes) * goal.temp_bytes / peak.temp_bytes
        if peak.temp_bytes <= before.temp_bytes:
            allowed = max(allowed, CHUNK_SHARE * goal.temp_bytes)
        size = next((s for s in candidate.sizes if all_saved - s.saved_bytes <= allowed), None)
    if size is None or size.saved_bytes == candidate.saved_bytes:
        return None
    return candidate.resized(size)


def _next_faster(candidate: Candidate, new: SearchState, goal: Goal) -> Candidate | None:
    """The candidate in the next faster size, if the goal is reached: chunks may take less than estimated."""
    faster = [size for size in candidate.sizes if size.added_seconds < candidate.added_seconds]
    return candidate.resized(faster[-1]) if faster and reaches(new, goal) else None


def _size_improves(new: SearchState, old: SearchState, state: SearchState, goal: Goal) -> bool:
    """Whether another size is better: faster if both reach the goal, else it saved at least half of what it should.

    Where the old one raised the peak, a lower one is enough; if it is no lower the chunk is not what is too large. One
    that is too slow is not better than one that lowered the peak and is not.
    """
    before, after = old.peak.temp_bytes, new.peak.temp_bytes
    if before > state.peak.temp_bytes:
        return after < before
    if old.seconds <= goal.max_seconds < new.seconds:
        return False
    if before <= goal.temp_bytes:
        return after <= goal.temp_bytes and new.added_seconds < old.added_seconds
    return after <= goal.temp_bytes or before - after >= (before - goal.temp_bytes) / 2
