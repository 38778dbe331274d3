"""Textual cases of tests/ir on the pages of passes, between `<!-- ir: NAME -->` and `<!-- end of ir -->`."""

from __future__ import annotations

import re
import textwrap

from tests.textual import source_and_expected

_BLOCK = re.compile(r"(<!-- ir: (\w+) -->\n).*?(<!-- end of ir -->)", re.DOTALL)
_COMMENT = re.compile(r"^// .*\n", re.MULTILINE)


def fill(text: str) -> str:
    """A page with its textual cases filled in."""
    return _BLOCK.sub(lambda match: f"{match[1]}\n{render(match[2])}\n{match[3]}", text)


def render(name: str) -> str:
    """A case in Markdown: its comments as a caption, the program before, and after."""
    source, expected = source_and_expected(name)
    first, *comments = _COMMENT.findall(source)
    caption = " ".join(line.removeprefix("// ").strip() for line in comments)
    program = _COMMENT.sub("", source).strip()
    intro = textwrap.fill(caption, 120) + "\n\n" if caption else ""
    how = first.removeprefix("// ").strip()
    return (
        f"{intro}Before (`tests/ir/{name}.mlir`, `{how}`):\n\n```mlir\n{program}\n```\n\n"
        f"After:\n\n```mlir\n{expected.strip()}\n```\n"
    )
