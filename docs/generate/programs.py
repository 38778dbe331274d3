"""Runs the Python blocks of a page as one program, and writes the output of each block below it.

Only pages with the line `<!-- every program on this page is run -->` are run. The output of a ```python block, or the
error of this library that it raises, goes into the ```text block right after it, if there is one.
"""

from __future__ import annotations

import contextlib
import io
import re
from typing import Any

from stablehlo_mem.errors import StableHLOMemError

_MARK = "<!-- every program on this page is run -->"
_BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:(\n```text\n)(.*?)^```\n)?", re.DOTALL | re.MULTILINE)
_VOLATILE = (
    (re.compile(r"\d+\.\d+ s of planning"), "… s of planning"),
    (re.compile(r"(compiles?) in \d+\.\d+ s"), r"\1 in … s"),
)


def fill(text: str) -> str:
    """A page with the output of its programs filled in.

    Raises:
        Exception: a program raised it, and it is no error of this library above a ```text block.
    """
    return _BLOCK.sub(_Page(), text) if _MARK in text else text


class _Page:
    """The blocks of one page, which share names and line numbers as if they were one file `program.py`."""

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
    for pattern, replacement in _VOLATILE:
        text = pattern.sub(replacement, text)
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())
