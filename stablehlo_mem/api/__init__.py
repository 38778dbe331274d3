"""The public functions: what `stablehlo_mem` exports, and what the command line calls."""
