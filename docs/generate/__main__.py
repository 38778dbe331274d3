"""Writes the generated parts of docs/: `python docs/generate [--check] [FILE...]`, by default of all files.

`--check` writes nothing and names the stale files. `make docs` and tests/test_docs.py call this.

Generated are: the IR on the pages of passes (from tests/ir), the table of ops (from the rules), the output of the
programs on the tutorial and errors pages, the API page, quoted source, the gallery, and the pictures. Tables of
measurements are written by benchmarks/tables.py.
"""

from __future__ import annotations

import os
import pathlib
import sys
from collections.abc import Iterator

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))

import api
import gallery
import ir_cases
import ops
import pictures
import programs
import sources

DOCS = pathlib.Path(__file__).parents[1]


def generated(names: list[str]) -> Iterator[tuple[pathlib.Path, str]]:
    """Every file with generated parts and its new content, one after the other, because some take a while.

    Args:
        names: files of docs/; all files if empty.
    """
    for path in sorted(DOCS.rglob("*.md")):
        if names and path.relative_to(DOCS).as_posix() not in names:
            continue
        text = path.read_text()
        for fill in (ir_cases.fill, ops.fill, api.fill, sources.fill, gallery.fill, programs.fill):
            text = fill(text)
        yield path, text
    for name in pictures.PROGRAMS:
        if not names or f"images/{name}" in names:
            yield DOCS / "images" / name, pictures.draw(name)
    for name, picture in gallery.pictures():
        if not names or "gallery.md" in names:
            yield DOCS / "images" / name, picture


def main() -> int:
    """Writes stale files; with --check only names them, with exit code 1."""
    check = "--check" in sys.argv
    stale = False
    names = [argument for argument in sys.argv[1:] if argument != "--check"]
    for path, text in generated(names):
        if path.exists() and path.read_text() == text:
            continue
        stale = True
        print(f"{'stale' if check else 'written'}: {path.relative_to(DOCS)}", flush=True)
        if not check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
    return int(stale and check)


if __name__ == "__main__":
    sys.exit(main())
