"""Draws a whole random program: arguments, something big made of them, more steps, small results."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import numpy as np

from tests.properties.drawing import Draw, Drawing, RandomProgram, is_float, without_unused
from tests.properties.kinds import DISCONTINUOUS, KINDS, KINKED, NOT_DIFFERENTIABLE, REDUCING, WIDENING

STEPS = 6


def draw_program(
    draw: Draw,
    steps: int = STEPS,
    kinds: tuple[Any, ...] = KINDS,
    indices: int = 0,
    jumping: tuple[Any, ...] = (),
    not_differentiable: tuple[Any, ...] = NOT_DIFFERENTIABLE,
) -> RandomProgram:
    """A program of about so many steps; of four about one in whole numbers, one a gradient.

    Args:
        kinds: of the steps.
        indices: elements of one more argument of integers; 0 for none.
        jumping: more kinds whose results may jump.
        not_differentiable: kinds without derivatives.
    """
    mode = draw(0, 3)
    d = Drawing(draw, whole=mode == 0, extreme=indices > 0)
    if indices:
        d.avals.append(jax.ShapeDtypeStruct((indices,), np.int32))
    arguments = d.arguments()
    d.one(WIDENING[0])
    d.one(d.pick(WIDENING))
    for _ in range(steps):
        d.one(d.pick(kinds))
    outputs = _outputs(d)
    floats = [any(is_float(a) for a in some) for some in (arguments, [d.avals[i] for i in outputs])]
    gradient = mode == 1 and all(floats) and not d.kinds.intersection(not_differentiable)
    jumps = (*DISCONTINUOUS, *KINKED) if gradient else DISCONTINUOUS
    continuous = not d.kinds.intersection((*jumps, *jumping))
    program = without_unused(RandomProgram(arguments, tuple(d.steps), outputs, continuous, d.whole, gradient))
    # The outputs need not depend on the arguments that are floats.
    return dataclasses.replace(program, gradient=gradient and any(is_float(a) for a in program.arguments))


def _outputs(d: Drawing) -> tuple[int, ...]:
    """Small results: nothing big need be kept."""
    outputs: list[int] = []
    for _ in range(d.draw(1, 3)):
        value = d.recent()
        if math.prod(d.avals[value].shape) > 200 and d.draw(0, 5) and d.one(d.pick(REDUCING), value):
            value = len(d.avals) - 1
        outputs.append(value)
    return tuple(outputs)
