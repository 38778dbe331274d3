"""The command line: see `stablehlo_mem.cli.main`."""

from __future__ import annotations

import sys

from stablehlo_mem.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
