"""The names that `host=` of `stablehlo_mem.jit` gives: a parameter's, or what JAX calls a part of an argument.

These are `opt_state`, `opt_state[0].mu`, `state['params']`; `host_calls` places the arrays.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import jax
from jax.tree_util import keystr

from stablehlo_mem.errors import InputError

Path = tuple[str, ...]
"""A parameter's name and the keys below it: ("opt_state", "0", "mu")."""
_KEY = re.compile(r"\.?([^.\[\]]+)|\[(?:'([^']*)'|\"([^\"]*)\"|([^\]]*))\]")
_LISTED = 8
"""How many names an error lists: one or two lines of them."""


@dataclasses.dataclass(frozen=True)
class HostArguments:
    """The arguments of a function that `host` names.

    Attributes:
        function: its name, for messages.
        positional: the names of its positional parameters, that of `*args` in the end if it has one.
        takes_more: whether it has `*args`.
        names: what `host` says.
        known: the names of all its parameters.
        keywords: that of `**kwargs` if it has one.
    """

    function: str
    positional: tuple[str, ...]
    takes_more: bool
    names: tuple[str, ...]
    known: frozenset[str] = frozenset()
    keywords: str | None = None

    def flags(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[bool]:
        """For each leaf of (args, kwargs) whether `host` names it.

        Raises:
            InputError: `host` names what is not there.
        """
        leaves, shown = self._leaves(args, kwargs)
        paths = [_path(name) for name in self.names]
        for name, path in zip(self.names, paths, strict=True):
            if not any(self._leads_to(path, leaf) for leaf in leaves):
                beside = [text for text, leaf in zip(shown, leaves, strict=True) if self._leads_to(path[:1], leaf)]
                raise InputError(
                    f"host names {name}, and {self.function} has no such array: {_listed(path[0], beside)}"
                )
        return [any(self._leads_to(path, leaf) for path in paths) for leaf in leaves]

    def refuse_static(self, static: Collection[int | str]) -> None:
        """Checks that `host` names no static argument.

        Args:
            static: the names of the function's static arguments, and their indices.

        Raises:
            InputError: it does.
        """
        for name in self.names:
            if _path(name)[0] in static:
                raise InputError(
                    f"host names {name}, which is a static argument of {self.function}: JAX makes it a part of the "
                    "program, in which it is no array"
                )

    def _leads_to(self, path: Path, leaf: Path) -> bool:
        """Whether a name is that of a leaf or of what it is in; `**kwargs` may be left out of it or not."""
        of_keywords = path[:1] == (self.keywords,) and leaf[0] not in self.known
        return leaf[: len(path)] == path or (of_keywords and leaf[: len(path) - 1] == path[1:])

    def _leaves(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[list[Path], list[str]]:
        """The path of each leaf of (args, kwargs), and how JAX writes it."""
        leaves: list[Path] = []
        shown: list[str] = []
        for (which, first, *rest), _ in jax.tree_util.tree_flatten_with_path((tuple(args), kwargs))[0]:
            root = self._root(first.idx) if which.idx == 0 else (first.key,)
            leaves.append((*root, *(keystr((key,), simple=True) for key in rest)))
            shown.append("".join((root[0], *(f"[{i}]" for i in root[1:]), keystr(tuple(rest)))))
        return leaves, shown

    def _root(self, index: int) -> Path:
        """The beginning of the paths of a positional argument."""
        last = len(self.positional) - self.takes_more
        return (self.positional[index],) if index < last else (*self.positional[last:], str(index - last))


def host_arguments(fun: Callable[..., Any], function: str, host: Any) -> HostArguments | None:
    """What `host` names of a function, None if it names nothing.

    Raises:
        InputError: it names no parameter, or is no name.
    """
    names: tuple[Any, ...] = (host,) if isinstance(host, str) or not isinstance(host, Iterable) else tuple(host)
    for name in names:
        if not isinstance(name, str) or not _path(name):
            raise InputError(f"host names {name!r}: give the name of a parameter of {function}, such as 'opt_state'")
    if not names:
        return None
    try:
        parameters = list(inspect.signature(fun).parameters.values())
    except (TypeError, ValueError):  # builtins may have no signature
        return HostArguments(function, ("args",), True, names)
    known = [p.name for p in parameters]
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        for name in names:
            if _path(name)[:1] not in [(k,) for k in known]:
                has = f"its parameters are {', '.join(known)}" if known else "it has none"
                raise InputError(f"host names {name!r}, which is no parameter of {function}: {has}")
    positional = [p for p in parameters if p.kind not in (p.KEYWORD_ONLY, p.VAR_KEYWORD)]
    takes_more = any(p.kind is p.VAR_POSITIONAL for p in positional)
    keywords = next((p.name for p in parameters if p.kind is p.VAR_KEYWORD), None)
    return HostArguments(function, tuple(p.name for p in positional), takes_more, names, frozenset(known), keywords)


def _path(name: str) -> Path:
    return tuple(next(filter(None, match.groups()), "") for match in _KEY.finditer(name))


def _listed(parameter: str, names: list[str]) -> str:
    """The arrays in a parameter, for an error."""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"there are {', '.join(names[:_LISTED])}{more}" if names else f"none is in {parameter}"
