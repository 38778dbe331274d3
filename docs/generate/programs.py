"""Runs the Python of a page, block after block as one program, and writes below each what it printed.

A page takes part if it says `<!-- every program on this page is run -->`. What a ```python block prints, or the error
of this library that it raises, goes into the ```text block right after it, where there is one.
"""

from __future__ import annotations

import contextlib
import io
import re
from typing import Any

from stablehlo_mem.errors import StableHLOMemError

_MARK = "<!-- every program on this page is run -->"
_BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:(\n```text\n)(.*?)^```\n)?", re.DOTALL | re.MULTILINE)
_VOLATILE = ((re.compile(r"\d+\.\d+ s of planning"), "… s of planning"),)


def fill(text: str) -> str:
    """A page with the output of its programs.

    Raises:
        Exception: whatever a program raises, unless it is an error of this library above a ```text block.
    """
    return _BLOCK.sub(_Page(), text) if _MARK in text else text


class _Page:
    """The blocks of one page: names and line numbers go on from one to the next, as in a file `program.py`."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {"__name__": "program"}
        self.lines = 0

    def __call__(self, match: re.Match[str]) -> str:
        code, opening = match[1], match[2]
        printed = self.run(code, expects=bool(opening))
        if not opening:
            return match[0]
        return f"```python\n{code}```\n{opening}{printed}```\n"

    def run(self, code: str, *, expects: bool) -> str:
        compiled = compile("\n" * self.lines + code, "program.py", "exec")
        self.lines += code.count("\n")
        out = io.StringIO()
        try:
            with contextlib.redirect_stdout(out):
                exec(compiled, self.names)
        except StableHLOMemError as error:
            if not expects:
                raise
            out.write(f"{type(error).__name__}: {error}\n")
        return _stable(out.getvalue())


def _stable(text: str) -> str:
    for pattern, instead in _VOLATILE:
        text = pattern.sub(instead, text)
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())
