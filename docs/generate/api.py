"""The API page: signatures and docstrings, so that it reads in the repository as on the site.

`docs/generate` calls `fill` on every page. Blocks are `<!-- public names -->`, all names of the package, and
`<!-- api: PATH ... -->` for others.
"""

from __future__ import annotations

import functools
import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any

import griffe

import stablehlo_mem as shm

_PUBLIC = re.compile(r"(<!-- public names -->\n).*?(<!-- end of public names -->)", re.DOTALL)
_OTHERS = re.compile(r"(<!-- api: ([\w. ]+) -->\n).*?(<!-- end of api -->)", re.DOTALL)
_PACKAGE = "stablehlo_mem"
_TITLES = {"parameters": "Arguments", "attributes": "Attributes", "returns": "Returns", "raises": "Raises"}


def fill(text: str) -> str:
    """A page with the descriptions of the public names and of those it asks for."""
    text = _PUBLIC.sub(lambda match: f"{match[1]}\n{public_names()}\n{match[2]}", text)
    return _OTHERS.sub(lambda match: f"{match[1]}\n{''.join(map(described, match[2].split()))}\n{match[3]}", text)


def public_names() -> str:
    """All public names, under headings for functions, classes and errors."""
    kinds: dict[str, list[str]] = {"Functions": [], "Classes": [], "Errors": []}
    for name in shm.__all__:
        value = getattr(shm, name)
        is_error = inspect.isclass(value) and issubclass(value, BaseException)
        kinds["Errors" if is_error else "Classes" if inspect.isclass(value) else "Functions"].append(
            f"{value.__module__}.{name}"
        )
    return "\n".join(f"## {kind}\n\n{''.join(map(described, paths))}" for kind, paths in kinds.items())


def described(path: str) -> str:
    """A function or class in Markdown: its signature and its docstring, and those of a class's methods."""
    loaded: Any = _package()[path.removeprefix(f"{_PACKAGE}.")]
    if loaded.is_function:
        return "\n".join((f"### `{loaded.name}`\n", _signature(loaded), *_docstring(loaded), ""))
    methods = [member for member in loaded.all_members.values() if _is_public_method(member)]
    parts = [f"### `{loaded.name}`\n", *_docstring(loaded)]
    for method in methods:
        parts += [f"#### `{loaded.name}.{method.name}`\n", *([_signature(method)] if method.is_function else [])]
        parts += _docstring(method)
    return "\n".join((*parts, ""))


@functools.cache
def _package() -> Any:
    return griffe.load(_PACKAGE)


def _is_public_method(member: Any) -> bool:
    """Whether a member is a method or property of this package that users call."""
    if member.name.startswith("_") or not member.canonical_path.startswith(_PACKAGE):
        return False
    member = member.final_target if member.is_alias else member
    return bool((member.is_function or "property" in member.labels) and member.has_docstring)


def _signature(function: Any) -> str:
    """A call with the parameters and their defaults; types are in the docstring where they matter."""
    text = f"{function.name}({', '.join(_parameters(function))})"
    if len(text) > 100:
        text = f"{function.name}(\n" + "".join(f"    {p},\n" for p in _parameters(function)) + ")"
    return f"```python\n{text}\n```\n"


def _parameters(function: Any) -> Iterator[str]:
    has_star = False
    for parameter in function.parameters:
        kind = parameter.kind.value
        if parameter.name == "self":
            continue
        if kind == "variadic positional":
            has_star = True
        if kind == "keyword-only" and not has_star:
            has_star = True
            yield "*"
        stars = {"variadic positional": "*", "variadic keyword": "**"}.get(kind, "")
        default = f"={parameter.default}" if parameter.default is not None and not stars else ""
        yield f"{stars}{parameter.name}{default}"


def _docstring(item: Any) -> Iterator[str]:
    """The sections of a docstring in Google's style."""
    if item.docstring is None:
        return
    for section in item.docstring.parse("google", warnings=False, returns_multiple_items=False):
        kind = section.kind.value
        if kind == "text":
            yield f"{section.value}\n"
        elif kind in _TITLES:
            yield f"**{_TITLES[kind]}**\n"
            yield "\n".join(map(_entry, section.value)) + "\n"


def _entry(entry: Any) -> str:
    """A parameter, attribute or error with its description; of what is returned the description alone."""
    names = "" if isinstance(entry, griffe.DocstringReturn) else getattr(entry, "name", None) or str(entry.annotation)
    label = ", ".join(f"`{name}`" for name in re.findall(r"[\w.*]+", names))
    text = " ".join(entry.description.split())
    return textwrap.fill(f"- {label}: {text}" if label else f"- {text}", 120, subsequent_indent="  ")
