"""Picks the model of the compiler that serves a chip: the only place that lists all compilers."""

from __future__ import annotations

from stablehlo_mem.analysis.compiler_model import CompilerModel
from stablehlo_mem.analysis.xla_cpu import XlaCpu
from stablehlo_mem.analysis.xla_gpu import XlaGpu
from stablehlo_mem.analysis.xla_tpu import XlaTpu
from stablehlo_mem.targets.chips import Chip, Kind

_MODELS: dict[Kind, CompilerModel] = {"cpu": XlaCpu(), "cuda": XlaGpu(), "tpu": XlaTpu()}


def compiler_model(chip: Chip) -> CompilerModel:
    """The model of the compiler that serves a chip."""
    return _MODELS[chip.kind]
