"""Whole files of this repository, between `<!-- file: NAME -->` and `<!-- end of file -->`: read on GitHub too."""

from __future__ import annotations

import pathlib
import re

_BLOCK = re.compile(r"(<!-- file: ([\w/.]+) -->\n).*?(<!-- end of file -->)", re.DOTALL)
_ROOT = pathlib.Path(__file__).parents[2]


def fill(text: str) -> str:
    """A page with the files filled in."""
    return _BLOCK.sub(lambda m: f"{m[1]}\n```python\n{(_ROOT / m[2]).read_text()}```\n\n{m[3]}", text)
