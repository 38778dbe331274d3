"""The methods of results that need the floors above: text, pages, plots, curves and checks.

Results are data and import nothing that prints or runs them. Their methods call the functions of this file, which
dispatch on the type of the result; `api.rendering` registers what they do when the package is imported.
"""

from __future__ import annotations

import functools
import html
import os
import pathlib
from typing import Any

_FRAME_HEIGHT = 900
"""Pixels a page is given in a notebook: the headline, both charts and the first decisions."""


@functools.singledispatch
def text_of(result: object) -> str:
    """A result as text for a terminal."""
    raise NotImplementedError(type(result))


@functools.singledispatch
def page_of(result: object) -> str:
    """A result as one HTML page."""
    raise NotImplementedError(type(result))


@functools.singledispatch
def plot_of(plan: object) -> Any:
    """A plan as a matplotlib figure."""
    raise NotImplementedError(type(plan))


@functools.singledispatch
def curve_of(profile: object, options: Any) -> Any:
    """Memory against time of the program that was profiled."""
    raise NotImplementedError(type(profile))


@functools.singledispatch
def check_of(plan: object, args: tuple[Any, ...], kwargs: dict[str, Any], seed: int) -> Any:
    """What running a plan's program beside the original shows."""
    raise NotImplementedError(type(plan))


class HasText:
    """A result that prints as text."""

    def __str__(self) -> str:
        return text_of(self)


class HasPage(HasText):
    """A result that is a page for a browser too."""

    def _repr_html_(self) -> str:
        """The page of `to_html` in an iframe, for notebooks: its styles and scripts touch nothing around it."""
        return (
            f'<iframe srcdoc="{html.escape(page_of(self))}" sandbox="allow-scripts" title="stablehlo-mem report" '
            f'style="width: 100%; height: {_FRAME_HEIGHT}px; border: 0"></iframe>'
        )

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Writes a self-contained page for a browser: memory over the program, and what was done.

        Args:
            path: the file, overwritten if it exists.

        Raises:
            OSError: it cannot be written.
        """
        pathlib.Path(path).write_text(page_of(self), encoding="utf-8")
