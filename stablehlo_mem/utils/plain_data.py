"""Converts results to what JSON can hold, for the command line and the files that it writes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, cast


def plain_data(value: Any) -> Any:
    """Dataclasses and mappings as dicts, tuples as lists, all the way down; fields that are not shown are left out."""
    if dataclasses.is_dataclass(value):
        return {field.name: plain_data(getattr(value, field.name)) for field in dataclasses.fields(value) if field.repr}
    if isinstance(value, Mapping):
        return {str(key): plain_data(item) for key, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, (tuple, list)):
        return [plain_data(item) for item in cast("list[Any]", value)]
    return value
