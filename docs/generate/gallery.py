"""The gallery: users' programs before and after, drawn from benchmarks/results/user_runs.json.

`docs/generate` calls `fill` for the page, between `<!-- gallery -->` and `<!-- end of gallery -->`, and `pictures`.
"""

from __future__ import annotations

import html
import json
import pathlib
import re
import textwrap
from collections.abc import Iterator
from typing import Any

from stablehlo_mem.utils.units import format_bytes, format_seconds

_BLOCK = re.compile(r"(<!-- gallery -->\n).*?(<!-- end of gallery -->)", re.DOTALL)
_RESULTS = pathlib.Path(__file__).parents[2] / "benchmarks" / "results" / "user_runs.json"
_SHARE = "10%"
_WHAT = {
    "graph network": "a training step of a message-passing network, 100,000 edges",
    "Keras CNN": "a training step of a small convolutional network with max-pooling, batch 128",
    "HMC": "Hamiltonian Monte Carlo of a logistic regression, 1,024 chains, 10,000 points",
    "Mamba, associative": "a training step of a selective state space model with an associative scan",
    "Mamba, scan": "the same with a sequential scan",
    "FFT convolution": "a training step of a long convolution by FFT, 16,384 steps",
    "CG": "conjugate gradients on a kernel matrix of 5,000 points, with its gradient",
    "DP-SGD": "a differentially private step: the gradient of each of 1,024 examples, clipped",
    "draws": "Gumbel-max draws from 4,096 categorical distributions of 8,192 classes",
    "option price": "a Monte Carlo price of an option and its sensitivities, 65,536 paths of 512 days",
    "mixture of experts": "a training step of a mixture of eight experts, 4,096 tokens",
    "InfoNCE": "a contrastive training step, batch 4,096: all images against all texts",
    "UNet": "a training step of a U-Net on 64 x 64 images",
    "CTC": "a training step of a speech model with optax's CTC loss, 500 frames",
    "Jacobians": "Jacobians of a network at many points",
    "GP, Cholesky": "the marginal likelihood of a Gaussian process by Cholesky, and its gradient",
    "LSTM": "a training step of an LSTM",
    "PINN": "a training step of a physics-informed network with second derivatives",
    "neural ODE": "a training step of a neural ODE",
}
_STYLE = (
    "<style>text{font:12px system-ui,sans-serif;fill:#333}.before{fill:#b8b8b8}.after{fill:#4e79a7}"
    ".budget{stroke:#d1495b;stroke-width:2}.name{font-weight:bold}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}.before{fill:#777}.after{fill:#76a5d5}}</style>"
)
_LEFT, _WIDTH, _RIGHT, _BAR = 70, 420, 150, 16


def fill(text: str) -> str:
    """A page with its gallery."""
    return _BLOCK.sub(lambda match: f"{match[1]}\n{_page()}\n{match[2]}", text)


def pictures() -> Iterator[tuple[str, str]]:
    """File names and pictures as SVG."""
    return ((_file(name), _picture(name, row)) for name, row in _kept())


def _rows() -> dict[str, Any]:
    rows: dict[str, Any] = json.loads(_RESULTS.read_text())["rows"]
    return {key.removesuffix(f", {_SHARE}"): row for key, row in rows.items() if key.endswith(_SHARE)}


def _kept() -> list[tuple[str, Any]]:
    """The programs that fit, those that save most time first."""
    return sorted(((n, r) for n, r in _rows().items() if r["fits"]), key=lambda item: item[1]["ratio"])


def _page() -> str:
    data = json.loads(_RESULTS.read_text())
    parts = [_entry(name, row) for name, row in _kept()]
    missed = [_missed(name, row) for name, row in _rows().items() if not row["fits"]]
    hardware = data["hardware"]
    note = (
        f"Measured on {hardware['cores']} cores of {hardware['cpu']}, jax {data['versions']['jax']}, {data['date']}. "
        "Memory is what XLA:CPU reports for one execution; time is the median of runs in turn, beside other jobs."
    )
    return "\n".join((*parts, "## Those that do not fit at a tenth\n", *missed, "", f"{textwrap.fill(note, 120)}\n"))


def _entry(name: str, row: Any) -> str:
    budget = f"{row['budget_bytes'] // 2**20}MiB"
    what = _WHAT[name][0].upper() + _WHAT[name][1:]
    return (
        f'## {name}\n\n{what}.\n\n```python\nstep = shm.jit(step, "{budget}")\n```\n\n'
        f"![{name}: memory and time, before and after](images/{_file(name)})\n"
    )


def _missed(name: str, row: Any) -> str:
    reached, budget = format_bytes(row["peak_bytes"]), format_bytes(row["budget_bytes"])
    why = f"it would take {row['slowdown']:.2g} times as long" if row["too_slow"] else f"{reached} is reached"
    line = f"- {name}, {_WHAT[name]}: {format_bytes(row['before_peak_bytes'])} as written, asked {budget}, {why}."
    return textwrap.fill(line, 120, subsequent_indent="  ")


def _file(name: str) -> str:
    return f"gallery_{re.sub(r'[^a-z]+', '_', name.lower())}.svg"


def _picture(name: str, row: Any) -> str:
    memory = _bars(34, "memory", row["before_peak_bytes"], row["peak_bytes"], format_bytes, budget=row["budget_bytes"])
    time = _bars(92, "time", row["unsplit_seconds"], row["seconds"], format_seconds)
    width = _LEFT + _WIDTH + _RIGHT
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} 140" width="{width}" role="img">'
        f"<title>{html.escape(name)}</title>{_STYLE}"
        f'<text class="name" x="0" y="16">{html.escape(name)}</text>{memory}{time}</svg>\n'
    )


def _bars(top: int, label: str, before: float, after: float, form: Any, budget: float | None = None) -> str:
    """Two bars on one scale, and the budget as a line through both."""
    scale = _WIDTH / max(before, after, budget or 0)
    rows = ((top, "before", before, ""), (top + _BAR + 4, "after", after, f" (×{after / before:.2f})"))
    drawn = "".join(
        f'<rect class="{kind}" x="{_LEFT}" y="{y}" width="{max(1, size * scale):.1f}" height="{_BAR}"/>'
        f'<text x="{_LEFT + max(1, size * scale) + 6:.1f}" y="{y + 12}">{form(size)}{more}</text>'
        for y, kind, size, more in rows
    )
    line = ""
    if budget is not None:
        x = _LEFT + budget * scale
        path = f"M{x:.1f} {top - 3}V{top + 2 * _BAR + 7}"
        line = f'<path class="budget" d="{path}"><title>budget {form(budget)}</title></path>'
    return f'<text x="0" y="{top + 12}">{label}</text>{drawn}{line}'
