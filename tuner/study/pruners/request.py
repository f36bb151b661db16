"""Request for a pruner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuner.study.unimodal.options import Unimodality

__all__ = ["PrunerRequest"]


@dataclass(frozen=True, kw_only=True)
class PrunerRequest:
    """Facts and options from which a pruner is made.

    Attributes:
        name: the name that the user wrote, for messages.
        canonical: our name of it.
        options: checked names with values as the user wrote them.
        rung_steps: the steps at which trials report.
        unimodality: needed by ``unimodal``.
    """

    name: str
    canonical: str
    options: Mapping[str, Any] = field(default_factory=dict)
    rung_steps: tuple[int, ...] = ()
    unimodality: Unimodality | None = None
