"""Random schedules of faults, replayed through the driver and the ledger with recorded curves and no Ray.

`replay` runs one small search of a random kind: with or without pauses, protected scores, a tight budget and a
committed run. Its executor places trials on slots as the executor on Ray does, and restarts those whose worker was
lost. Faults happen at random: in workers, in the charge, in the driver between any two of its writes, in checkpoints.
In its last life the search has no faults, and must end. After every event the ledger is compared with the draws.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from unittest import mock

from benchmarks.faults.replayed import DriverDied, WorkerDied
from benchmarks.faults.search import MEMORY, Search
from benchmarks.harness import Results, Settings, Table, at_least, at_most
from trainables.errors import WalledError
from trainables.rungs import TrainingLoop, checkpoint_path, why_lost
from tuner.executors.base import act, checkpoint_finder, lose
from tuner.study import views
from tuner.study.driver import StudyDriver
from tuner.study.interrupted_trials import InterruptedTrials
from tuner.study.types import Stop, Suggestion, Wait

FLAWS = (
    "a lease is not charged",
    "repeated steps are free",
    "interrupted trials are forgotten",
)
"""Faults that are planted in the product. Each must be found."""

_PASSING = ("charge-actor-lost", "ledger-busy", "ledger-unavailable")  # as in `trainables.trial`, which imports Ray
_RESTARTS = 7
_EVENTS, _LIVES = 15_000, 40


BARS = {
    "schedules.count": at_least(10_000, quick=False),
    "schedules.broken": at_most(0),
    **{f"schedules.found.{flaw.replace(' ', '_')}": at_least(1) for flaw in FLAWS},
}

_COUNT, _QUICK_COUNT, _PLANTED_COUNT = 10_000, 200, 60
_CHUNK = 50


def measure(settings: Settings, results: Results) -> None:
    """Replay the schedules in `settings.jobs` processes, then plant each flaw in a few."""
    wanted = _QUICK_COUNT if settings.quick else _COUNT
    seeds = range(settings.seed * 1_000_000, settings.seed * 1_000_000 + wanted)
    seen: Counter[str] = Counter()
    states: Counter[str] = Counter()
    broken: list[str] = []
    count = leased = drawn = 0
    with get_context("spawn").Pool(settings.jobs) as pool:
        for outcome in pool.imap_unordered(replay, seeds, chunksize=_CHUNK):
            count, leased, drawn = count + 1, leased + outcome.leased, drawn + outcome.drawn
            seen, states = seen + outcome.seen, states + outcome.states
            broken += [f"schedule {outcome.seed}: {what}" for what in outcome.broken]
            results.count("schedules.count", count)
            results.count("schedules.broken", len(broken), note="; ".join(broken[:5]))
        for flaw in FLAWS:
            found = pool.imap_unordered(partial(replay, flaw=flaw), seeds[:_PLANTED_COUNT])
            name = f"schedules.found.{flaw.replace(' ', '_')}"
            results.count(name, sum(bool(outcome.broken) for outcome in found), note=f"of {_PLANTED_COUNT} schedules")
    results.count("schedules.faults", seen.total())
    results.count("schedules.leased", leased, note="steps in the ledgers")
    results.count("schedules.drawn", drawn, note="noise draws, counted on their own")
    results.tables["Faults of the schedules"] = Table(("fault", "times"), tuple(seen.most_common()))
    results.tables["Ends of the trials"] = Table(("state", "trials"), tuple(states.most_common()))


@dataclass(frozen=True)
class Outcome:
    """What one schedule showed: the faults that happened, the promises broken, and the sums over its trials."""

    seed: int
    broken: tuple[str, ...]
    seen: Counter[str]
    states: Counter[str]
    leased: int
    drawn: int


@dataclass
class _Worker:
    """A trial on a slot, or one that waits for its restart. Its loop is None while it waits."""

    trial: Suggestion
    loop: TrainingLoop | None
    lost: int = 0


def replay(seed: int, *, flaw: str = "") -> Outcome:
    """Replay one schedule, and return what it showed. `flaw` is one of `FLAWS`, or empty."""
    folder = Path(tempfile.mkdtemp(prefix="schedule-", dir=MEMORY))
    try:
        search = Search(folder, seed, flaw)
        stop, driver = None, None
        with _planted(flaw):
            for life in range(_LIVES):
                search.world.quiet = life == _LIVES - 1 or search.rng.random() < 0.3
                whole = search.world.quiet
                try:
                    driver = search.driver()
                    stop = _live(search, driver)
                except DriverDied:
                    continue
                except Exception as error:  # noqa: BLE001 - a schedule that ends in an error is a finding
                    if getattr(error, "code", "") != "trial-lost":
                        search.world.broken.append(f"the search failed: {type(error).__name__}: {error}")
                        break
                    search.world.seen["committed run lost"] += 1
                    for path, content in search.copies.items():  # as the error asks
                        path.write_bytes(content)
                    continue
                if stop is not None and whole:
                    break
        search.check()
        search.check_end(stop, driver)
        state = search.ledger.search_state("search").training
        trials = search.storage.get_all_trials(0)
        states = Counter(trial.user_attrs.get(views.OUTCOME, trial.state.name) for trial in trials)
        seen, broken = search.world.seen, tuple(search.world.broken)
        return Outcome(seed, broken, seen, states, state.leased_steps, search.world.draws.total())
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _planted(flaw: str) -> Iterator[None]:
    """Plant a flaw in the driver. Those of the charge and the training are planted in `replayed`."""
    forgets = flaw == "interrupted trials are forgotten"
    with mock.patch.object(InterruptedTrials, "reconcile", return_value=None) if forgets else nullcontext():
        yield


def _live(search: Search, driver: StudyDriver) -> Stop | None:
    """Run the search until its driver stops or is interrupted; return None if it was interrupted."""
    driver.reconcile(checkpoint_finder(search.folder))
    world, rng = search.world, search.rng
    workers: dict[str, _Worker] = {}
    left_behind: list[TrainingLoop] = []  # workers that were given up and still run
    for _ in range(_EVENTS):
        stop = _place(search, driver, workers)
        if isinstance(stop, Stop) and not workers:
            return stop
        if not workers:
            search.breaks("the driver waits, and nothing runs")
            return None
        if world.strikes("interrupted by a signal", 0.1):
            return None
        if world.strikes("stopped by the user", 0.05):
            driver.stop("asked")
        if world.strikes("checkpoint damaged", 0.5):
            _damage(search, rng.choice(list(workers)))
        if left_behind and rng.random() < 0.3:
            _advance_left_behind(search, left_behind.pop())
        running = [name for name, worker in workers.items() if worker.loop is not None]
        if running:
            _advance(search, driver, workers, rng.choice(running), left_behind)
        search.check()
    return None


def _place(search: Search, driver: StudyDriver, workers: dict[str, _Worker]) -> Stop | None:
    """Restart the trials that lost their workers, then fill the slots."""
    for name, worker in list(workers.items()):
        if worker.loop is None:
            if driver.restarted(name):
                worker.trial = replace(worker.trial, shape=driver.shape_of_trial(name))
                worker.loop = search.loop(worker.trial)
            else:
                del workers[name]
    while len(workers) < search.slots:
        decision = driver.next()
        if isinstance(decision, Stop):
            return decision
        if isinstance(decision, Wait):
            return None
        workers[decision.trial_id] = _Worker(decision, search.loop(decision))
    return None


def _advance(
    search: Search, driver: StudyDriver, workers: dict[str, _Worker], name: str, left_behind: list[TrainingLoop]
) -> None:
    """Let a worker train to its next rung and report, as the executor on Ray does."""
    worker = workers[name]
    assert worker.loop is not None
    try:
        rung = worker.loop.advance()
    except WorkerDied:
        _lost(search, driver, workers, name)
    except WalledError:
        driver.raised(name)
        del workers[name]
    except Exception as error:  # noqa: BLE001 - it ends its own trial
        if getattr(error, "code", None) in _PASSING:
            _lost(search, driver, workers, name)
            return
        search.world.seen[f"trial lost: {getattr(error, 'code', type(error).__name__)}"] += 1
        del workers[name]
        lose(driver, search.setup, name, why_lost(error))
    else:
        if search.world.strikes("machine cut off after a rung", 0.3):
            left_behind.append(worker.loop)
            _lost(search, driver, workers, name)
        elif not act(driver, name, rung.step, rung.metrics):
            del workers[name]


def _lost(search: Search, driver: StudyDriver, workers: dict[str, _Worker], name: str) -> None:
    worker = workers[name]
    worker.loop, worker.lost = None, worker.lost + 1
    if worker.lost > _RESTARTS:
        del workers[name]
        lose(driver, search.setup, name, "after the last allowed restart")


def _advance_left_behind(search: Search, loop: TrainingLoop) -> None:
    """Let a worker that was given up train on. What it leases is charged, and what it reports is dropped."""
    try:
        loop.advance()
    except (WorkerDied, Exception):  # noqa: BLE001 - nobody listens to it
        return


def _damage(search: Search, name: str) -> None:
    """Cut off the end of a trial's newest checkpoint, flip a byte in it, or remove it."""
    path = checkpoint_path(search.folder, name)
    if path is None:
        return
    content = path.read_bytes()
    search.copies[path] = content
    how = search.rng.randrange(3)
    if how == 0:
        path.write_bytes(content[: len(content) // 2])
    elif how == 1:
        path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    else:
        path.unlink()
