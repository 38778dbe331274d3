"""Results of analyses, kept with what they analyse: every folder decorates its analyses of graphs with these.

A subject (a graph, mostly) does not change, so an analysis of it is made once for the same arguments. Its cache lives
as long as the subject: a step of a plan makes a new graph, which begins with an empty cache.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Hashable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
_MISSING: Any = object()


class AnalysisCache:
    """The results of the analyses of one subject.

    Attributes:
        tables: by the name of the analysis, "stablehlo_mem.ir.matchers.splat_value"; in each the results by arguments.
    """

    __slots__ = ("tables",)

    def __init__(self) -> None:
        self.tables: defaultdict[str, dict[Any, Any]] = defaultdict(dict)

    def get(self, analysis: str, arguments: Hashable, compute: Callable[[], T]) -> T:
        """The result of an analysis for some arguments, computed the first time."""
        table = self.tables[analysis]
        if arguments not in table:
            table[arguments] = compute()
        return table[arguments]


class Analysed(Protocol):
    """Something that does not change and keeps the results of its analyses."""

    @property
    def cache(self) -> AnalysisCache:
        """The results."""
        ...


S = TypeVar("S", bound=Analysed)


def cached_analysis(analysis: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Makes a function an analysis of its first argument, computed once for the same (hashable) other arguments."""
    name = f"{analysis.__module__}.{analysis.__qualname__}"

    @functools.wraps(analysis)
    def cached(subject: S, *args: P.args, **kwargs: P.kwargs) -> T:
        table = subject.cache.tables[name]
        key = (*args, *kwargs.items()) if kwargs else args
        result = table.get(key, _MISSING)
        if result is _MISSING:
            result = table[key] = analysis(subject, *args, **kwargs)
        return result

    return cached
