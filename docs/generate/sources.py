"""Quoted definitions of this library, between `<!-- source: FILE NAME -->` and `<!-- end of source -->`."""

from __future__ import annotations

import ast
import pathlib
import re

_BLOCK = re.compile(r"(<!-- source: ([\w/.]+) (\w+) -->\n).*?(<!-- end of source -->)", re.DOTALL)
_ROOT = pathlib.Path(__file__).parents[2]


def fill(text: str) -> str:
    """A page with the quoted definitions filled in."""
    return _BLOCK.sub(lambda m: f"{m[1]}\n```python\n{definition(m[2], m[3])}\n```\n\n{m[4]}", text)


def definition(file: str, name: str) -> str:
    """The source of a top-level function or class of a file.

    Raises:
        ValueError: the file has none of that name.
    """
    source = (_ROOT / file).read_text()
    for node in ast.parse(source).body:
        if getattr(node, "name", None) == name:
            return ast.get_source_segment(source, node) or ""
    raise ValueError(f"{file} defines no {name}")
