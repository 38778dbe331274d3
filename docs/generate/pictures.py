"""Pictures of real plans as SVG, for docs/how.md: the memory of a program over its kernels, before and after."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp

import stablehlo_mem as shm
from stablehlo_mem.utils.units import format_bytes

_STYLE = (
    "<style>text{font:12px system-ui,sans-serif;fill:#333}.before{fill:#e15759}.after{fill:#4e79a7}"
    ".axis{stroke:#999;fill:none}.budget{stroke:#59a14f;stroke-dasharray:4 3}.light{fill:#777}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}.light{fill:#aaa}}</style>"
)
_WIDTH, _HEIGHT, _LEFT, _TOP = 350, 170, 60, 46


@dataclasses.dataclass(frozen=True)
class _History:
    """Bytes of temporaries that are live at every kernel of a program, and the op of each kernel."""

    bytes_at: tuple[int, ...]
    ops: tuple[str, ...]

    @property
    def peak(self) -> int:
        return max(self.bytes_at)


def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Softmax attention, as written."""
    scores = jnp.einsum("hqd,hkd->hqk", q, k) / 8
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores), v)


def attention_loss(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """A loss of attention, to be differentiated."""
    return (attention(q, k, v) ** 2).sum()


def layers_loss(weights: jax.Array, x: jax.Array) -> jax.Array:
    """A deep network as a scan over its layers."""

    def layer(h: jax.Array, w: jax.Array) -> tuple[jax.Array, None]:
        return h + jnp.tanh(jax.nn.gelu(h @ w)), None

    return (jax.lax.scan(layer, x, weights)[0] ** 2).sum()


def _spec(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


PROGRAMS: dict[str, tuple[str, Callable[..., Any], tuple[jax.ShapeDtypeStruct, ...], str]] = {
    "attention.svg": ("Attention, 8 heads, 4,096 tokens", attention, (_spec(8, 4096, 64),) * 3, "128MiB"),
    "attention_gradient.svg": (
        "The gradient of attention, 8 heads, 4,096 tokens",
        jax.grad(attention_loss, (0, 1, 2)),
        (_spec(8, 4096, 64),) * 3,
        "256MiB",
    ),
    "layers_gradient.svg": (
        "The gradient of a scan over 16 layers, 4,096 tokens",
        jax.grad(layers_loss),
        (_spec(16, 512, 512), _spec(4096, 512)),
        "256MiB",
    ),
}
"""File name → title, function, its arguments, budget."""


def draw(name: str) -> str:
    """One of `PROGRAMS` as SVG."""
    return _picture(*PROGRAMS[name])


def _picture(title: str, fun: Callable[..., Any], specs: Sequence[jax.ShapeDtypeStruct], budget: str) -> str:
    exported = jax.export.export(jax.jit(fun), platforms=["cpu"])(*specs)
    plan = shm.plan(exported, budget, target="cpu")
    assert plan.fits, title
    assert plan.steps, title
    before, after = _history(plan.before), _history(plan.after)
    room = plan.budget_bytes - plan.after.argument_bytes - plan.after.output_bytes
    panels = (
        _panel(0, "before", "as written", before, before.peak, room)
        + _panel(1, "after", f"within {budget}", after, before.peak, room)
        + _panel(2, "after", "the same, enlarged", after, max(after.peak, room), room)
    )
    total = 3 * (_LEFT + _WIDTH) + 20
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total} {_TOP + _HEIGHT + 34}" role="img">'
        f"<title>{html.escape(title)}</title>{_STYLE}"
        f'<text x="{_LEFT}" y="16" font-weight="bold">{html.escape(title)}: temporaries, kernel by kernel</text>'
        f"{panels}</svg>\n"
    )


def _history(profile: shm.MemoryProfile) -> _History:
    """The static profile's view of a program on CPU."""
    assert profile.history is not None
    return _History(profile.history.temp_bytes, profile.history.ops)


def _panel(place: int, kind: str, label: str, history: _History, top: int, room: int) -> str:
    """One diagram with a bar per kernel, whose tooltip is the op."""
    left, bottom = place * (_LEFT + _WIDTH) + _LEFT, _TOP + _HEIGHT
    edges = [left + _WIDTH * i / len(history.bytes_at) for i in range(len(history.bytes_at) + 1)]
    bars = "".join(
        f'<rect class="{kind}" x="{a:.1f}" y="{bottom - _HEIGHT * n / top:.1f}" width="{b - a:.1f}" '
        f'height="{_HEIGHT * n / top:.1f}"><title>{html.escape(op)}: {format_bytes(n)}</title></rect>'
        for (a, b), n, op in zip(pairwise(edges), history.bytes_at, history.ops, strict=True)
        if n
    )
    height = bottom - _HEIGHT * room / top
    return (
        f'<text x="{left}" y="{_TOP - 8}">{html.escape(label)}: peak {format_bytes(history.peak)}</text>{bars}'
        f'<path class="axis" d="M{left} {_TOP}V{bottom}H{left + _WIDTH}"/>'
        f'<path class="budget" d="M{left} {height:.1f}H{left + _WIDTH}"/>'
        f'<text class="light" x="{left - 6}" y="{_TOP + 10}" text-anchor="end">{format_bytes(top)}</text>'
        f'<text class="light" x="{left - 6}" y="{bottom}" text-anchor="end">0</text>'
        f'<text class="light" x="{left}" y="{bottom + 18}">{len(history.bytes_at)} kernels, in order; dashed: '
        f"the budget leaves, {format_bytes(room)}</text>"
    )
