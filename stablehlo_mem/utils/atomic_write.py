"""Writes files completely or not at all: plans, caches and reports, which other processes may read meanwhile."""

from __future__ import annotations

import pathlib
import tempfile


def write_whole(path: pathlib.Path, data: bytes) -> None:
    """Writes a file, and its directory if there is none; a concurrent reader sees the old file or the new one.

    Raises:
        OSError: the file cannot be written; it is as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".tmp", delete=False) as file:
        new = pathlib.Path(file.name)
        try:
            file.write(data)
            file.flush()
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)
