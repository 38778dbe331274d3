"""The command line, `python -m stablehlo_mem`, and the demo it runs."""
