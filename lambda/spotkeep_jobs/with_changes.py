"""A changed copy of a frozen model. mypy checks its fields by name and by type. Pure.

`model_copy` takes a dictionary with strings as names, so no check sees a wrong name or a wrong type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # mypy checks the fields of this function alone. It takes a model of pydantic for a dataclass here.
    from dataclasses import replace as with_changes
else:

    def with_changes(model: Any, /, **changes: Any) -> Any:
        """Return a copy of a frozen model with other values in some fields. The values are not validated."""
        return model.model_copy(update=changes)


__all__ = ["with_changes"]
