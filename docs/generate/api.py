"""The API page: a directive for mkdocstrings per public name. `docs/generate` calls `fill` on every page."""

from __future__ import annotations

import inspect
import re

import stablehlo_mem as shm

_BLOCK = re.compile(r"(<!-- public names -->\n).*?(<!-- end of public names -->)", re.DOTALL)


def fill(text: str) -> str:
    """A page with the public names."""
    return _BLOCK.sub(lambda match: f"{match[1]}\n{names()}\n{match[2]}", text)


def names() -> str:
    """Headings for functions, classes and errors, and names with their modules: `jit` and `plan` are modules too."""
    kinds: dict[str, list[str]] = {"Functions": [], "Classes": [], "Errors": []}
    for name in shm.__all__:
        value = getattr(shm, name)
        is_error = inspect.isclass(value) and issubclass(value, BaseException)
        kinds["Errors" if is_error else "Classes" if inspect.isclass(value) else "Functions"].append(
            f"{value.__module__}.{name}"
        )
    return "\n".join(f"## {kind}\n\n" + "".join(f"::: {name}\n" for name in paths) for kind, paths in kinds.items())
