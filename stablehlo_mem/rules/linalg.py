"""Rows of transforms and factorisations: batched over every dimension they do not work in."""

from __future__ import annotations

from stablehlo_mem.rules.row import Row

ROWS: dict[str, Row] = {
    "stablehlo.fft": Row(),
    "stablehlo.cholesky": Row(),
    "stablehlo.triangular_solve": Row(),
}
