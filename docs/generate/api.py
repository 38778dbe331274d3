"""The API page: every public name, functions first, then classes, then errors, for mkdocstrings to fill in."""

from __future__ import annotations

import inspect
import re

import stablehlo_mem as shm

_BLOCK = re.compile(r"(<!-- public names -->\n).*?(<!-- end of public names -->)", re.DOTALL)


def fill(text: str) -> str:
    """A page with the public names."""
    return _BLOCK.sub(lambda match: f"{match[1]}\n{names()}\n{match[2]}", text)


def names() -> str:
    """A heading a kind, a directive a name: by where it is defined, as modules have the names `jit` and `plan` too."""
    kinds: dict[str, list[str]] = {"Functions": [], "Classes": [], "Errors": []}
    for name in shm.__all__:
        value = getattr(shm, name)
        is_error = inspect.isclass(value) and issubclass(value, BaseException)
        kinds["Errors" if is_error else "Classes" if inspect.isclass(value) else "Functions"].append(
            f"{value.__module__}.{name}"
        )
    return "\n".join(f"## {kind}\n\n" + "".join(f"::: {name}\n" for name in found) for kind, found in kinds.items())
