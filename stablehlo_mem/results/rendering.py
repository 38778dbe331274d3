"""How results are shown: `Shown` and `Drawn` are bases of the public types, `api.rendering` provides the functions.

Results are data on a low floor; what prints, draws and follows them up is on the floors above.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable
from typing import Any

_provided: dict[tuple[type, str], Callable[..., Any]] = {}


def provide(kind: type, **functions: Callable[..., Any]) -> None:
    """Registers the functions of a type of results, each by the name that `provided` is asked for."""
    _provided.update({(kind, name): function for name, function in functions.items()})


def provided(result: object, name: str) -> Callable[..., Any]:
    """The function that was registered for the type of a result."""
    return _provided[type(result), name]


class Shown:
    """A result that people read as text."""

    def __str__(self) -> str:
        return provided(self, "text")(self)


class Drawn(Shown):
    """A result that is a page for a browser too."""

    def _repr_html_(self) -> str:
        """The page of `to_html`, in a frame of its own: what notebooks show."""
        return provided(self, "frame")(self)

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Writes it as one page for a browser, nothing else needed: memory over the program, and what was done.

        Args:
            path: the file; one that is there is written over.

        Raises:
            OSError: it cannot be written.
        """
        pathlib.Path(path).write_text(provided(self, "page")(self), encoding="utf-8")
