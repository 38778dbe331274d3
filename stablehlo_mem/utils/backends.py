"""Starts JAX's backends quietly. Whatever asks for a device or a client first calls it."""

from __future__ import annotations

import contextlib
import functools

import jax

from stablehlo_mem.utils.quiet import quiet


@functools.cache
def start_backends() -> None:
    """Starts them, if they are not; what they say of hardware that is not there is kept off the screen."""
    with quiet(), contextlib.suppress(RuntimeError):  # raised again where a device is asked for
        jax.local_devices()
