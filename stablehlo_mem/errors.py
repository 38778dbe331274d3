"""The typed errors of stablehlo-mem: all derive from `StableHLOMemError`."""

from __future__ import annotations


class StableHLOMemError(Exception):
    """Base of every error raised on purpose by stablehlo-mem."""


class InputError(StableHLOMemError, ValueError):
    """The module, the budget or an option is not one we can work with."""


class TargetError(StableHLOMemError, ValueError):
    """The target is unknown, its compiler is not installed, or it does not fit the module."""


def explain_error(error: Exception, text: str) -> None:
    """Adds lines to an error: to the message of ours, which `str(error)` and logs show; as notes to JAX's.

    The text of a `JaxRuntimeError` is kept beside its code, out of reach of Python: another error would lose the code.
    """
    if isinstance(error, StableHLOMemError):
        error.args = (f"{error}\n{text}", *error.args[1:])
        return
    for line in text.splitlines():
        error.add_note(line)


class PassError(StableHLOMemError, RuntimeError):
    """A pass broke the module: a bug in stablehlo-mem. Names the pass and those that ran before it."""

    def __init__(self, pass_name: str, message: str, before: tuple[str, ...] = ()):
        self.pass_name = pass_name
        self.before = before
        after = f" (after {', '.join(before)})" if before else ""
        super().__init__(f"pass {pass_name}{after}: {message}")
