"""Runs every benchmark of this machine and brings the tables of the documents up to date: `make bench`."""

from __future__ import annotations

import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
SCRIPTS = ("cpu_speed.py", "suite.py", "peers.py", "planning.py", "dispatch.py", "peaks.py", "tables.py")


def main() -> None:
    for script in SCRIPTS:
        print(f"== {script}", flush=True)
        subprocess.run([sys.executable, str(HERE / script)], check=True)


if __name__ == "__main__":
    main()
