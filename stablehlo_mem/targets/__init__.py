"""Targets: what to compile for, and what the compiler says a program needs.

- The chips: `chips` has their figures, `calibration` measures those of this machine.
- Compiling: `target` is what users name, `known_targets` lists all. `devices` finds compilers and what they compile
  for, with `gpu_configs`. `compile` compiles and reads the report, a `measurement`; `isolated_compile` does so in
  another process.
- Running: `execution` and `device_timing` in this process, `fresh_process` in a new one.

Nothing is imported here: the analyses read `chips` without loading the compilers' side.
"""
