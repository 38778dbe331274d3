"""Files that are all there or not at all."""

from __future__ import annotations

import pathlib
import tempfile


def write_whole(path: pathlib.Path, data: bytes) -> None:
    """Writes a file, and its directory if there is none; whoever reads at the same time sees the old one or the new.

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
