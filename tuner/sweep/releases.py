"""The stored releases of a ledger: a charged, noisy copy of the records, or voted labels, for any number of searches.

Formal guarantees:
    - A release is charged in the ledger before it is drawn, and drawn once. The process that charges it holds the lock
      of the folder from the look for an older release to the entry with the checksum.
    - Only a file with the checksum in the ledger is used. So a release that is missing or was changed, or whose process
      died between the charge and the checksum, is charged again, and the old charge stays.

Files, which are the operator's (mode 0600, in a folder of mode 0700 next to the ledger's key)::

    LEDGER.releases/NAME.npz      a release; NAME is its search in the ledger
    LEDGER.releases/lock
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from trainables.wall import behind
from tuner.errors import LedgerError, TunerError
from tuner.files import file_lock, replacing, write_json
from tuner.privacy.accountant.filters import OneRelease, VotedLabels
from tuner.sweep.folder import read_json
from tuner.sweep.identity import keyed_fingerprint, near_names, public_facts
from tuner.sweep.ledger_head import remember_head
from tuner.sweep.settings import split_of, stated_use

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainables.data import DatasetRequest
    from trainables.release.votes import Voting
    from tuner.privacy.ledger.ledger import Ledger
    from tuner.privacy.ledger.state import DatasetState, SearchState
    from tuner.sweep.folder import SweepFolder
    from tuner.sweep.preflight import ReadySearch

__all__ = [
    "StoredRelease",
    "draw_unprotected",
    "has_release",
    "hold_release",
    "release_name",
    "release_of",
    "release_to_use",
    "require_release",
    "take_release",
    "voting_of",
]


@dataclass(frozen=True, kw_only=True)
class StoredRelease:
    """A release on the disk.

    Attributes:
        search: its name in the ledger; empty for a release without privacy.
        path: its file, which only the operator may read.
        sha256: checksum of the file.
        kept: probability that a label in it is the record's own.
        new: whether it was charged and drawn just now.
    """

    search: str
    path: Path
    sha256: str
    kept: float
    new: bool = False

    @property
    def intact(self) -> bool:
        """Whether the file is there and has the checksum."""
        try:
            with self.path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest() == self.sha256
        except OSError:
            return False


def take_release(ledger: Ledger, sweep: SweepFolder, prepared: ReadySearch) -> StoredRelease:
    """Return the release that a new sweep uses. It is charged and drawn if none fits. The sweep's folder remembers it.

    Raises:
        BudgetRefusedError: a release must be charged and does not fit the data set's cap. Nothing was drawn.
        WalledError: the records could not be read. The release is charged, and another attempt is charged again.
        InfrastructureError: the release could not be written. The same holds.
    """
    folder = ledger.release_folder
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.chmod(0o700)
    with file_lock(folder / "lock"):
        fingerprint = keyed_fingerprint(ledger, prepared.request)
        found = release_to_use(prepared, ledger.states_of(prepared.owners), ledger, fingerprint=fingerprint)
        if found is None:
            found = _charge_and_draw(ledger, prepared, sweep.operator_log, fingerprint)
    _remember(sweep, found)
    remember_head(sweep, ledger, prepared.owners)
    return found


def release_to_use(
    prepared: ReadySearch, states: Sequence[DatasetState], ledger: Ledger, *, fingerprint: str | None = None
) -> StoredRelease | None:
    """Return the newest stored release that fits the plan, or None if one must be charged and drawn.

    It fits if its limit, its claim, its user and its validation split are the same, and its file is intact. Without a
    `fingerprint`, the records are not compared, for a preview that must not read them.
    """
    plan, user = prepared.plan, ledger.user()
    for state in states:
        for search in reversed(state.searches):
            same = (search.filter, search.epsilon, search.delta) == (plan.training_filter, plan.epsilon, plan.delta)
            mine = search.user == user and search.details.get("split") == split_of(prepared.request)
            known = fingerprint is None or search.fingerprint == fingerprint
            if same and mine and known and search.begun and search.stored is not None:
                found = release_of(ledger, search)
                if found.intact:
                    return found
    return None


def release_of(ledger: Ledger, search: SearchState) -> StoredRelease:
    """Return the stored release of a search in the ledger. Its file may be missing."""
    if not isinstance(search.filter, OneRelease | VotedLabels) or search.stored is None:
        raise LedgerError(
            "release-missing",
            f"The ledger holds no stored release named {search.search!r}. Restore the ledger, or start a new search.",
        )
    path = ledger.release_folder / f"{search.search}.npz"
    return StoredRelease(search=search.search, path=path, sha256=search.stored, kept=_kept(search.filter))


def hold_release(sweep: SweepFolder, ledger: Ledger | None) -> StoredRelease:
    """Return the release that a sweep uses. Raise a TunerError if it, or its entry in the ledger, is not the same."""
    require_release(sweep)
    known = read_json(_file(sweep))
    found = StoredRelease(
        search=str(known.get("search")),
        path=Path(str(known.get("path"))),
        sha256=str(known.get("sha256")),
        kept=float(str(known.get("kept"))),
    )
    if ledger is not None:
        charged = release_of(ledger, ledger.search_state(found.search))
        if (charged.sha256, charged.kept) != (found.sha256, found.kept):
            raise TunerError(
                "ledger-mismatch",
                f"The release of {sweep.id} differs from the one that was charged in the ledger. Restore the sweep's "
                "files from a copy, or start a new search.",
            )
        found = charged
    if not found.intact:
        raise TunerError(
            "release-missing",
            f"The release {found.path}, on which {sweep.id} trains, is missing or was changed. Restore the file from a "
            "copy, or start a new search, which draws a new release and is charged for it.",
        )
    return found


def has_release(sweep: SweepFolder) -> bool:
    """Return whether the sweep has taken its release."""
    return _file(sweep).exists()


def require_release(sweep: SweepFolder) -> None:
    """Raise a TunerError if the sweep died before it had its release."""
    if not has_release(sweep):
        raise TunerError(
            "release-missing",
            f"{sweep.id} ended before it had its release. If one was charged, it stays charged. Start a new search: it "
            "uses the release if that was stored and fits, or else is charged for a release of its own.",
        )


def release_name(sweep: SweepFolder) -> str:
    """Return the name in the ledger of the release that a sweep uses; empty if it has none."""
    return str(read_json(_file(sweep)).get("search", "")) if _file(sweep).exists() else ""


def draw_unprotected(sweep: SweepFolder, prepared: ReadySearch) -> StoredRelease:
    """Draw a release with the published noise into the sweep's folder. Nothing is charged and nothing is claimed."""
    found = _drawn(sweep.root / "operator", "release", prepared, sweep.operator_log, labels=False)
    _remember(sweep, found)
    return found


def _charge_and_draw(ledger: Ledger, prepared: ReadySearch, log: Path, fingerprint: str) -> StoredRelease:
    from trainables.data import is_own

    plan, name = prepared.plan, f"{prepared.owner}-release-{secrets.token_hex(4)}"
    own: dict[str, object] = {}
    if is_own(prepared.request):
        near = near_names(ledger, prepared.owner, prepared.about, user=ledger.user())
        own = {"own": public_facts(prepared.about), "near": near}
    ledger.open_search(  # this charges the release too
        prepared.owner,
        name,
        filter=plan.training_filter,
        epsilon=plan.epsilon,
        delta=plan.delta,
        unit=plan.unit,
        fingerprint=fingerprint,
        details={
            "experiment": plan.name,
            "method": plan.method,
            "split": split_of(prepared.request),
            **stated_use(prepared.experiment),
            **own,
        },
    )
    found = _drawn(ledger.release_folder, name, prepared, log, labels=True)
    ledger.store_release(name, found.sha256)
    return replace(found, new=True)


def _drawn(folder: Path, name: str, prepared: ReadySearch, log: Path, *, labels: bool) -> StoredRelease:
    limit = prepared.plan.training_filter
    if isinstance(limit, VotedLabels):
        make, kept = partial(_voted_labels, prepared.request, limit), 1.0
    elif isinstance(limit, OneRelease):
        make, kept = partial(_noisy_records, prepared.request, limit, labels=labels), _kept(limit) if labels else 1.0
    else:
        raise TunerError("plan-incomplete", "The plan of this search has no release. Restore plan.json from a copy.")
    content = behind(log, make)
    path = folder / f"{name}.npz"
    _write(path, content)
    return StoredRelease(
        search=name if labels else "", path=path, sha256=hashlib.sha256(content).hexdigest(), kept=kept
    )


def _noisy_records(request: DatasetRequest, limit: OneRelease, *, labels: bool) -> bytes:
    from trainables.engine.random import SecureGenerator
    from trainables.release.draw import Randomiser, draw_release, packed

    each = limit.randomiser
    randomiser = Randomiser(
        clip=each.clip, noise=each.noise, label_epsilon=each.label_epsilon if labels else None, classes=each.classes
    )
    return packed(draw_release(request, randomiser, rows=limit.rows, generator=SecureGenerator()))


def _voted_labels(request: DatasetRequest, limit: VotedLabels) -> bytes:
    from trainables.engine.random import SecureGenerator
    from trainables.release.draw import packed
    from trainables.release.votes import draw_labels

    return packed(draw_labels(request, voting_of(limit), queries=limit.noise.queries, generator=SecureGenerator()))


def voting_of(limit: VotedLabels) -> Voting:
    """Return the rule by which labels are drawn under a limit."""
    from trainables.release.votes import Voting

    each = limit.noise
    return Voting(
        threshold=limit.threshold,
        threshold_noise=each.threshold_noise,
        answer_noise=each.answer_noise,
        answers=each.answers,
    )


def _kept(limit: OneRelease | VotedLabels) -> float:
    """Return the probability with which a training takes a label of the release for the record's own."""
    return 1.0 if isinstance(limit, VotedLabels) else limit.randomiser.kept


def _write(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with replacing(path, mode=0o600) as file:
            file.write(content)
    except OSError as error:
        raise TunerError(
            "release-unwritable",
            f"The release could not be written to {path} ({error.strerror}). The release stays charged. Fix the disk. "
            "The next search draws another release and is charged for it.",
        ) from error


def _file(sweep: SweepFolder) -> Path:
    return sweep.root / "release.json"


def _remember(sweep: SweepFolder, release: StoredRelease) -> None:
    values = {"search": release.search, "path": str(release.path), "sha256": release.sha256, "kept": release.kept}
    write_json(_file(sweep), values)
