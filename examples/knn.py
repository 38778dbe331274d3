"""The ten nearest neighbours of every point. The matrix of all distances would be 400 MiB, and is needed twice."""

import jax
from showing import show

import stablehlo_mem as shm

POINTS, WIDTH = 10_000, 16


def neighbours(points):
    squares = (points**2).sum(1)
    distances = squares[:, None] + squares[None] - 2 * points @ points.T
    nearest, which = jax.lax.top_k(-distances, 10)
    return -nearest, which


points = jax.random.normal(jax.random.key(0), (POINTS, WIDTH))

small = shm.jit(neighbours, budget="32MiB")
show(small, neighbours, points)
