"""Converts dataclasses to what JSON can hold and back: `Plan.to_json` writes, the plan cache and the reports read."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Union, cast, get_args, get_origin, get_type_hints


def plain_data(value: Any) -> Any:
    """Dataclasses and mappings as dicts, tuples as lists, all the way down; fields that are not shown are left out."""
    if dataclasses.is_dataclass(value):
        return {field.name: plain_data(getattr(value, field.name)) for field in dataclasses.fields(value) if field.repr}
    if isinstance(value, Mapping):
        return {str(key): plain_data(item) for key, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, (tuple, list)):
        return [plain_data(item) for item in cast("list[Any]", value)]
    return value


def restored(kind: Any, data: Any) -> Any:
    """What `plain_data` made of a value of a type: dataclasses, tuples, unions and mappings of plain values."""
    if dataclasses.is_dataclass(kind):
        if isinstance(data, cast("type[Any]", kind)):
            return data
        hints = get_type_hints(kind)
        shown = (field.name for field in dataclasses.fields(kind) if field.name in data)
        return cast("Any", kind)(**{name: restored(hints[name], data[name]) for name in shown})
    arguments = get_args(kind)
    if get_origin(kind) is tuple:
        kinds = [arguments[0]] * len(data) if arguments[-1] is Ellipsis else arguments
        return tuple(restored(member, item) for member, item in zip(kinds, data, strict=True))
    if get_origin(kind) in (Union, UnionType) and data is not None:
        return restored(next(member for member in arguments if _may_be(member, data)), data)
    return data


def _may_be(kind: Any, data: Any) -> bool:
    """Whether data may be of a member of a union: dataclasses are told apart by their fields.

    What an earlier version wrote lacks the fields that were added since; those have defaults.
    """
    if dataclasses.is_dataclass(kind):
        fields = [field for field in dataclasses.fields(kind) if field.repr]
        missing = dataclasses.MISSING
        needed = {f.name for f in fields if f.default is missing and f.default_factory is missing}
        return isinstance(data, dict) and needed <= set(cast("dict[str, Any]", data)) <= {
            field.name for field in fields
        }
    return kind is not NoneType and isinstance(data, list if get_origin(kind) is tuple else get_origin(kind) or kind)
