"""Plans whose pages the tests look at."""

from __future__ import annotations

import dataclasses
import functools
import random

import jax
import jax.numpy as jnp

import stablehlo_mem as shm
from stablehlo_mem.results.memory_history import Buffer, History, LiveValue
from stablehlo_mem.results.memory_profile import MemoryProfile
from stablehlo_mem.targets.measurement import Measured
from tests.support import exported, spec

EVIL = "</script><script>window.hacked = 1</script><img src=x onerror=window.hacked=1>"
MIB = 2**20


def attention(q, k, v):
    with jax.named_scope("heads"):
        return jax.nn.softmax(jnp.einsum("hqd,hkd->hqk", q, k), -1) @ v


@functools.cache
def attention_plan() -> shm.Plan:
    """8 MiB of scores in 3 MiB, of which 768 KiB go in and out."""
    made = shm.plan(exported(attention, *[spec(2, 768, 32)] * 3), "3MiB", target="cpu")
    assert made.fits
    assert made.before.peak_bytes > 3 * MIB
    assert made.steps
    return made


def evil(plan: shm.Plan) -> shm.Plan:
    """The plan with markup for names."""
    history = plan.before.history
    assert history is not None
    buffer = Buffer(LiveValue(EVIL, "f32", (1,), MIB, EVIL), 0, 0)
    live = (buffer.value, *plan.before.live)
    before = dataclasses.replace(plan.before, history=dataclasses.replace(history, buffers=(buffer,)), live=live)
    return dataclasses.replace(plan, name=EVIL, before=before)


def crowded(plan: shm.Plan, seed: int = 0) -> shm.Plan:
    """The plan with 60 buffers of 7 names over 120 points on both sides, and 60 MiB of padding."""
    return dataclasses.replace(
        plan, name="crowded", before=_crowd(plan.before, seed), after=_crowd(plan.after, seed + 1)
    )


def _crowd(profile: MemoryProfile, seed: int) -> MemoryProfile:
    draw = random.Random(seed)
    points = 120
    scopes = [f"model/layer_{i // 40}/{('attention', 'mlp')[i // 20 % 2]}" for i in range(points)]
    buffers = [_drawn_buffer(draw, points, scopes) for _ in range(60)]
    temp = [sum(b.value.nbytes for b in buffers if b.begin <= i <= b.end) + MIB // 2 for i in range(points)]
    history = History(
        ops=tuple(draw.choice(("dot_general", "add", "exponential", "reduce")) for _ in range(points)),
        temp_bytes=tuple(temp),
        fixed_bytes=profile.static_peak_bytes - profile.temp_bytes,
        buffers=tuple(sorted(buffers, key=lambda b: b.begin)),
        loops=(),
        scopes=tuple(scopes),
    )
    measured = Measured(
        argument_bytes=profile.argument_bytes,
        output_bytes=profile.output_bytes,
        temp_bytes=max(temp) + 60 * MIB,
        alias_bytes=profile.alias_bytes,
        constant_bytes=profile.constant_bytes,
    )
    return dataclasses.replace(profile, temp_bytes=max(temp), history=history, measured=measured)


def _drawn_buffer(draw: random.Random, points: int, scopes: list[str]) -> Buffer:
    begin = draw.randrange(points)
    end = min(points - 1, begin + draw.choice((2, 10, 60)))
    source = f"layers.py:{draw.randrange(10, 14)} (jit(step)/jvp({scopes[begin]})/while/body/dot_general)"
    value = LiveValue("dot_general", "f32", (draw.randrange(7), 256, 1024), draw.randrange(1, 16) * MIB, source)
    return Buffer(value, begin, end)
