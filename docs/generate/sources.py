"""Quoted definitions and whole files.

Between `<!-- source: FILE NAME -->` and `<!-- end of source -->`, `<!-- file: FILE -->` and `<!-- end of file -->`.
"""

from __future__ import annotations

import ast
import pathlib
import re

_BLOCK = re.compile(r"(<!-- source: ([\w/.]+) (\w+) -->\n).*?(<!-- end of source -->)", re.DOTALL)
_FILE = re.compile(r"(<!-- file: ([\w/.]+) -->\n).*?(<!-- end of file -->)", re.DOTALL)
_ROOT = pathlib.Path(__file__).parents[2]


def fill(text: str) -> str:
    """A page with the quoted definitions and files filled in."""
    text = _FILE.sub(lambda m: f"{m[1]}\n```python\n{(_ROOT / m[2]).read_text()}```\n\n{m[3]}", text)
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
