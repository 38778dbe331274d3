"""Writes the generated parts of docs/: `python docs/generate`. `--check` writes nothing and names what is stale.

What is generated: the IR of the pass pages from tests/ir, the table of ops from the rules, what the programs of the
tutorial and of the errors page print, the names on the API page, quoted source, and the pictures. Tables of
measurements are those of benchmarks/tables.py.
"""

from __future__ import annotations

import os
import pathlib
import sys

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))

import api
import ir_cases
import ops
import pictures
import programs
import sources

DOCS = pathlib.Path(__file__).parents[1]


def generated() -> dict[pathlib.Path, str]:
    """Every file with generated parts and what it should hold."""
    texts = {path: path.read_text() for path in sorted(DOCS.rglob("*.md"))}
    for fill in (ir_cases.fill, ops.fill, api.fill, sources.fill, programs.fill):
        texts = {path: fill(text) for path, text in texts.items()}
    return texts | {DOCS / "images" / name: svg for name, svg in pictures.draw().items()}


def main() -> int:
    """Writes, or with --check tells, what is not as it should be: exit code 1 then."""
    stale = {path: text for path, text in generated().items() if not path.exists() or path.read_text() != text}
    for path, text in stale.items():
        if "--check" not in sys.argv:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        print(f"{'stale' if '--check' in sys.argv else 'written'}: {path.relative_to(DOCS)}")
    return int(bool(stale) and "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
