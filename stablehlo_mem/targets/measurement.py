"""What a target's compiler reports for a program: the bytes it needs, or a refusal. Data that the planner reads."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    """What a target's compiler reports for one executable, in bytes of the device's memory.

    Attributes:
        host_fixed_bytes: arguments + outputs − aliased in the host's memory.
        host_temp_bytes: temporaries in the host's memory.
    """

    argument_bytes: int
    output_bytes: int
    temp_bytes: int
    alias_bytes: int
    constant_bytes: int
    host_fixed_bytes: int = 0
    host_temp_bytes: int = 0

    @property
    def peak_bytes(self) -> int:
        """Arguments + outputs + temporaries + embedded constants − aliased."""
        return self.argument_bytes + self.output_bytes + self.temp_bytes + self.constant_bytes - self.alias_bytes

    @property
    def host_bytes(self) -> int:
        """What it needs of the host's memory."""
        return self.host_fixed_bytes + self.host_temp_bytes


@dataclasses.dataclass(frozen=True)
class Refused:
    """The compiler's error, and the bytes it says the program needs if memory ran out (None: another error)."""

    message: str
    needed_bytes: int | None
