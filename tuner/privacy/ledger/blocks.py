"""Blocks of a growing table: each block is a data set of its own, and a search counts with its whole claim on each.

A table `sales` with the blocks 2026-10 and 2026-11 is, for the ledger, the two data sets `sales/2026-10` and
`sales/2026-11`. A search over both has its trials in the first. In the others it has a *mirror*: a search with the same
filter and claim that charges nothing by itself. Before the search charges its first step, its mirrors begin: from then
on their claims are committed for good. All entries of one event are written in one transaction.

Claim. Let a record's block be a function of that record alone, and let all searches that are charged to block b be
jointly (ε_b, δ_b)-DP. Then all that is shown is (ε_b, δ_b)-DP for each record of b, and (max ε_b, max δ_b)-DP for each
record.

Proof (parallel composition, blocks chosen adaptively). For a record of b, a search that does not use b is
post-processing. Every other search has its whole claim in the chain of b before its first step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tuner.errors import BudgetRefusedError, LedgerError

if TYPE_CHECKING:
    from tuner.privacy.ledger.state import DatasetState, SearchState

__all__ = ["admit_blocks", "mirror_name", "mirrors_of", "require_mirrors", "table_of"]

_MARK = "/"


def mirror_name(search: str, dataset: str) -> str:
    """Return the name of a search's mirror on another block."""
    return f"{search}{_MARK}{dataset.rpartition(_MARK)[2]}"


def table_of(dataset: str) -> str:
    """Return the name of the table of which a data set is a block; the data set's own name if it is no block."""
    return dataset.partition(_MARK)[0]


def mirrors_of(
    states: Mapping[str, DatasetState], search: SearchState, *, but_damaged: bool = False
) -> list[SearchState]:
    """Return the mirrors of a search; raise a ledger error if one is missing or its data set is damaged.

    With `but_damaged`, damaged blocks are left out. Nothing can be written to them, so the claim stays committed there.
    """
    found = []
    for dataset in search.blocks:
        state = states.get(dataset)
        if but_damaged and state is not None and state.damage is not None:
            continue
        mirror = None if state is None else state.intact().by_name.get(mirror_name(search.search, dataset))
        if mirror is None:
            raise LedgerError(
                "block-not-charged",
                f"Search {search.search!r} uses the block {dataset!r}, but is not charged to that block. Please report "
                "this as a bug.",
            )
        found.append(mirror)
    return found


def require_mirrors(states: Mapping[str, DatasetState], search: SearchState) -> None:
    """Raise `LedgerError` unless the whole claim of a search that is about to charge is committed on all its blocks.

    A damaged block is passed over: nothing new can be written that needs it, and old entries stay readable.
    """
    for dataset in search.blocks:
        state = states.get(dataset)
        if state is not None and state.damage is not None:
            continue
        mirror = None if state is None else state.by_name.get(mirror_name(search.search, dataset))
        same = mirror is not None and (
            mirror.begun
            and mirror.mirror_of == search.search
            and (mirror.epsilon, mirror.delta, mirror.unit, mirror.user)
            == (search.epsilon, search.delta, search.unit, search.user)
            and {name: pool.filter for name, pool in mirror.pools.items()}
            == {name: pool.filter for name, pool in search.pools.items()}
        )
        if not same:
            raise LedgerError(
                "block-not-charged",
                f"Search {search.search!r} cannot charge steps, because its claim is not committed on the block "
                f"{dataset!r}. Please report this as a bug.",
            )


def admit_blocks(states: Mapping[str, DatasetState], dataset: str) -> None:
    """Refuse a search or a cap of a whole table that is used by blocks, or the reverse: neither's total would hold."""
    for other in states.values():
        if other.dataset == dataset or table_of(other.dataset) != table_of(dataset):
            continue
        if not (other.by_name or other.cap or other.grants):
            continue
        if _MARK not in dataset or _MARK not in other.dataset:
            raise BudgetRefusedError(
                "blocks-differ",
                f"The ledger already has a search or a cap on {other.dataset!r}, so {dataset!r} cannot have a search "
                "or a cap. Use a table either whole or by blocks, because otherwise a record would have two totals. "
                + (
                    "Name the blocks in `dataset.block`."
                    if _MARK not in dataset
                    else "Leave `dataset.block` out, or give the blocks another data set name."
                ),
            )
