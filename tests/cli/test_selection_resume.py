"""Sealed searches that are cut off: nothing is released, one charge, and the same number of runs after a resume."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

import optuna
import pytest
from command_fakes import Died, Tune, dies, interrupted, raising_at, run_until_death
from sealed_fakes import SEALED, draw, made, outside, sealed, the_sweep

import tuner.runner.selection
from trainables.checkpoint import read_state
from trainables.engine.gen import LossProbes
from trainables.training import PrivateTraining, TrainingSpec
from tuner.errors import LedgerError, TunerError
from tuner.privacy.accountant.run_laws import RunLaw
from tuner.privacy.ledger.ledger import Ledger
from tuner.runner.commands import RunOptions, run_file
from tuner.study.samplers.prior import PriorSampler
from tuner.study.storage import open_storage
from tuner.study.views import read_trials
from tuner.sweep.sealed import read_winner


@pytest.mark.parametrize("error", [KeyboardInterrupt, Died], ids=["interrupted", "killed"])
def test_a_search_that_was_cut_off_releases_nothing_and_goes_on_with_its_number(
    tune: Tune, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    with monkeypatch.context() as patch:
        drawn = draw(patch, 3)
        raising_at(patch, 3, error)
        with pytest.raises((Died, TunerError)):
            run_file(tune.write(**SEALED), (), RunOptions(local=True))
    sweep = the_sweep(tune)
    sealed_search = tune.search_state(sweep.id).filter
    assert drawn == [(sealed_search.law, sealed_search.at_most)]
    assert sealed_search.law == RunLaw(name="geometric", mean=3.0)
    assert outside(sweep) == {"experiment.yaml", "plan.json", "status.json", "sweep.lock"}
    assert sweep.read_status().keys() == {"state", "file", "version", "pid", "data_dir", "detail", "place"}
    assert tune.mlflow_runs() == []
    assert tune.entries == ["open_search", "begin"], "charged as a whole, and it stays open"
    assert "[sweep-not-finished]" in tune("export", "tiny", code=2).err
    assert "sealed, winner not released yet" in tune("show", "tiny").text
    shown = tune("status").text if error is KeyboardInterrupt else ""
    assert "no winner" not in shown
    assert not shown or "winner not released yet" in shown
    assert "[sweep-not-finished]" in tune("sync", "tiny", code=2).err
    before = json.loads((sweep.sealed / "runs.json").read_text())
    with monkeypatch.context() as patch:
        drawn = draw(patch, 50)
        said = tune("resume", "tiny", "--local")
    assert drawn == [], "it is not drawn again"
    assert json.loads((sweep.sealed / "runs.json").read_text()) == before
    assert made(sweep) == before["runs"] == 3
    assert "winner" in said.text
    assert tune.entries == ["open_search", "begin"], "begun once"
    again = tune("resume", "tiny", "--local")
    assert "already finished (done); nothing to do" in again.text
    assert tune.entries == ["open_search", "begin"]
    assert made(sweep) == 3


def test_an_interruption_of_the_release_can_be_resumed(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        draw(patch, 2)
        patch.setattr(tuner.runner.selection, "_release", interrupted)
        said = tune("run", tune.write(**SEALED), "--local", code=130).err
    assert "all charges remain and nothing is released. Resume with: tune resume" in said
    assert tune("status", "tiny", "--json").json["sweeps"][0]["state"] == "interrupted"
    the_sweep(tune).write_status(state="failed")
    assert "sweep-has-result" in tune("rm", "tiny", code=2).text
    assert "winner" in tune("resume", "tiny", "--local").text
    assert made(the_sweep(tune)) == 2


def begin(tune: Tune, runs: int, **changes: object) -> None:
    """Start a sealed search of so many runs that dies before its first run."""
    with pytest.MonkeyPatch.context() as patch:
        draw(patch, runs)
        patch.setattr(tuner.runner.selection, "_train", dies)
        run_until_death(tune.write(**{**SEALED, **changes}))


def wait_for_a_run(tune: Tune, process: subprocess.Popen[str]) -> None:
    """Wait until one run more is under way; a wait without end is ended by the limit that pytest has for a test."""
    before = made(the_sweep(tune))
    while made(the_sweep(tune)) == before:
        assert process.poll() is None, f"it ended before that:\n{process.communicate()}"
        time.sleep(0.02)


def test_threads_and_workers_stay_as_they_are(tune: Tune) -> None:
    """They decide how sums are rounded, so two copies of the folder could release two winners with the same noise."""
    begin(tune, 2)
    for key in ("cpus_per_trial", "workers_per_trial"):
        assert (
            "[resume-changes-setting]" in tune("resume", "tiny", "--local", "--set", f"resources.{key}=2", code=2).err
        )
    file = the_sweep(tune).experiment
    file.write_text(file.read_text().replace("cpus_per_trial: 1", "cpus_per_trial: 2"))
    assert "[ledger-mismatch]" in tune("resume", "tiny", "--local", code=1).err
    file.write_text(file.read_text().replace("cpus_per_trial: 2", "cpus_per_trial: 1"))
    tune("resume", "tiny", "--local", "--set", "resources.concurrent_trials=2")


@pytest.mark.slow
def test_ctrl_c_and_stop_reach_it_and_kill_9_loses_nothing(tune: Tune) -> None:
    begin(tune, 200)  # more than end before the last signal
    endings: list[tuple[Callable[[Any], object], int]] = [
        (lambda process: process.send_signal(signal.SIGKILL), -signal.SIGKILL),
        (lambda process: process.send_signal(signal.SIGINT), 130),
        (lambda _process: tune("stop", "tiny"), 130),
    ]
    for end, code in endings:
        process = tune.process("resume", "tiny", "--local")
        wait_for_a_run(tune, process)
        end(process)
        out, err = process.communicate()
        assert process.returncode == code, err
        assert "Traceback" not in err
        assert "trial" not in out.partition("releases nothing.")[2] + err
        if code == 130:
            assert "[interrupted]" in err
            assert "tune resume tiny" in err
        assert read_winner(the_sweep(tune)) is None
    assert tune.entries == ["open_search", "begin"]


@pytest.mark.parametrize("at", ["before the ledger", "before it is begun", "after it is begun"])
def test_a_start_that_was_cut_off_begins_once(tune: Tune, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    import tuner.runner.start

    places: dict[str, tuple[object, str]] = {
        "before the ledger": (tuner.runner.start, "enter"),
        "before it is begun": (Ledger, "begin_sealed"),
        "after it is begun": (tuner.runner.selection, "_train"),
    }
    with monkeypatch.context() as patch:
        draw(patch, 2)
        patch.setattr(*places[at], dies)
        run_until_death(tune.write(**SEALED))
    begun = [] if at == "before the ledger" else ["open_search", "begin"][: 2 if at == "after it is begun" else 1]
    assert [kind for kind in tune.entries if kind in ("open_search", "begin")] == begun
    with monkeypatch.context() as patch:
        draw(patch, 2)
        tune("resume", "tiny", "--local")
    kinds = tune.entries
    assert kinds.count("open_search") == kinds.count("begin") == 1
    assert made(the_sweep(tune)) == 2


@pytest.mark.parametrize("sampler", ["random", "bounded"])
def test_every_copy_of_a_search_comes_to_the_winner_that_was_charged(
    tune: Tune, monkeypatch: pytest.MonkeyPatch, sampler: str
) -> None:
    """Two winners of independent runs would cost twice the claim. One of the two is cut off within a candidate."""
    space = {"learning_rate": {"log_uniform": [0.1, 1.0]}, "max_grad_norm": {"log_uniform": [0.5, 2.0]}}
    begin(tune, 3, search__sampler=sampler, search__space=space)
    shutil.copytree(the_sweep(tune).root, tune.folder / "copy" / the_sweep(tune).id)
    drawn, draw_one = [], PriorSampler.sample_independent

    def cut_off(sampler: PriorSampler, *of: Any) -> Any:  # noqa: ANN401 - as Optuna's
        drawn.extend([of] if sampler.generator_of else [])  # not those of the check before
        return dies() if len(drawn) == 2 else draw_one(sampler, *of)

    with monkeypatch.context() as patch:
        patch.setattr(PriorSampler, "sample_independent", cut_off)
        with pytest.raises(Died):
            tune("resume", "tiny", "--local")
    found = []
    for storage in ("runs", "copy"):
        tune("resume", "tiny", "--local", "--storage", storage)
        (file,) = (tune.folder / storage).glob("*/winner.json")
        weights = read_state(file.parent / "sealed" / "winner.pt")["model"]
        journal = open_storage(file.parent / "sealed")
        runs = read_trials(optuna.load_study(storage=journal, study_name=file.parent.name), mode="max", steps_planned=1)
        drawn_in_all = [(run.parameters, run.last_score) for run in runs]
        found.append((file.read_text(), {name: value.tolist() for name, value in weights.items()}, drawn_in_all))
    assert found[0] == found[1]


def test_other_secrets_than_the_charged_ones_are_refused(tune: Tune) -> None:
    begin(tune, 2)
    runs = the_sweep(tune).sealed / "runs.json"
    charged = json.loads(runs.read_text())
    for changed in ({"runs": 3}, {"key": "00" * 32}):
        runs.write_text(json.dumps({**charged, **changed}))
        assert "[ledger-mismatch]" in tune("resume", "tiny", "--local", code=1).err
        assert made(the_sweep(tune)) == 0
    runs.write_text(json.dumps(charged))
    tune("resume", "tiny", "--local")
    assert made(the_sweep(tune)) == 2


def test_a_number_that_is_lost_is_never_drawn_again(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    tune("budget", "set", "digits", "--epsilon", "10", "--delta", "1e-4")
    with monkeypatch.context() as patch:
        raising_at(patch, 1, KeyboardInterrupt)
        sealed(tune, 2, code=130)
    sweep = the_sweep(tune)
    assert "[dataset-cap-exceeded]" in tune("run", "tiny.yaml", "--local", code=3).err, "it stands charged"
    assert tune.sweeps == [sweep.root], "the folder of the refused one is gone"
    (sweep.sealed / "runs.json").unlink()
    assert "[sealed-runs-missing]" in tune("resume", "tiny", "--local", code=1).err
    assert made(sweep) == 1
    shutil.rmtree(sweep.sealed)
    before = tune.entries
    assert "[sealed-runs-missing]" in tune("resume", "tiny", "--local", code=1).err
    assert "sealed, no winner" in tune("show", "tiny").text, "none can come any more"
    assert tune.entries == before
    assert tune.mlflow_runs() == []


def test_a_release_that_was_cut_off_is_told_to_mlflow_once(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        draw(patch, 2)
        patch.setattr(tuner.runner.selection, "_track", dies)
        run_until_death(tune.write(**SEALED))
    released = read_winner(the_sweep(tune))
    assert released is not None
    assert tune.mlflow_runs() == []
    tune("resume", "tiny", "--local")
    assert read_winner(the_sweep(tune)) == released
    assert len(tune.mlflow_runs()) == 2
    assert tune.entries == ["open_search", "begin"]


def test_a_failure_tells_its_kind_and_no_word_more(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    from tuner.study.driver import StudyDriver

    def unreadable(*_: object) -> None:
        raise LedgerError("ledger-unavailable", "the ledger cannot be written")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device, in trial 0002-abcdef")

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "begin_sealed", unreadable)
        assert "[ledger-unavailable]" in sealed(tune, 3, code=1), "before anything is secret it is told as it is"
    assert tune.search_state(the_sweep(tune).id).status == "closed", "nothing was charged"
    with monkeypatch.context() as patch:
        draw(patch, 3)
        patch.setattr(StudyDriver, "finish", full)
        said = tune("resume", "tiny", "--local", code=1).text
    assert "failed (No space left on device)" in said
    assert "OSError" not in said
    assert "0002" not in said
    assert "0002-abcdef" in the_sweep(tune).operator_log.read_text()
    assert the_sweep(tune).read_status()["state"] == "failed"
    assert "winner" in tune("resume", "tiny", "--local").text


def test_the_sealed_part_may_be_destroyed_once_the_winner_is_exported(tune: Tune) -> None:
    sealed(tune, 2)
    more = ("resume", "tiny", "--local", "--set", "search.trials=4")
    assert "[resume-changes-setting]" in tune(*more, code=2).err, "more runs cannot be asked for"
    tune("export", "tiny")
    sweep = the_sweep(tune)
    shutil.rmtree(sweep.sealed)
    for words in (("status",), ("show", "tiny"), ("report", "tiny"), ("verify", "exports/tiny/privacy_card.json")):
        tune(*words)
    assert tune("resume", "tiny", "--local", "--json").json["finished_before"] is True
    assert tune.entries == ["open_search", "begin", "card"]
    assert not sweep.sealed.exists(), "nothing is run again"


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_on_ray_it_goes_on_with_its_number_after_the_driver_is_gone(tune: Tune, how: signal.Signals) -> None:
    begin(tune, 20, resources__concurrent_trials=2)
    process = tune.process("resume", "tiny")
    wait_for_a_run(tune, process)
    process.send_signal(how)
    _, err = process.communicate()
    assert process.returncode == (130 if how is signal.SIGINT else -how), err
    assert read_winner(the_sweep(tune)) is None
    assert made(the_sweep(tune)) < 20
    process = tune.process("resume", "tiny")
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert "winner" in out
    assert made(the_sweep(tune)) == 20
    assert tune.entries == ["open_search", "begin"]


def test_a_run_that_is_made_again_draws_what_it_drew(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another draw would be a choice among runs by whatever killed the first one."""
    drawn: dict[bytes | None, list[bytes]] = {}
    real = PrivateTraining.__init__

    def noting(training: PrivateTraining, spec: TrainingSpec, *rest: Any, **more: Any) -> None:  # noqa: ANN401
        real(training, spec, *rest, **more)
        drawn.setdefault(spec.replay_key, []).append(training._secret.uniform(8).numpy().tobytes())

    monkeypatch.setattr(PrivateTraining, "__init__", noting)
    with monkeypatch.context() as patch:
        draw(patch, 2)
        raising_at(patch, 0, Died)
        run_until_death(tune.write(**SEALED))
    tune("resume", "tiny", "--local")
    assert None not in drawn
    assert len(drawn) == 2, "a key for each of the two runs"
    first = next(iter(drawn.values()))
    assert len(first) > 1
    assert len(set(first)) == 1, "the one that was cut off, and made again"
    assert len({each[0] for each in drawn.values()}) == 2


def test_a_run_under_gen_that_is_made_again_sets_the_same_rates_and_the_release_tells_both_noises(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rates follow from the probes, whose noise is drawn again from the run's key."""
    rates: dict[bytes | None, list[list[float]]] = {}
    init, probe = PrivateTraining.__init__, LossProbes.probe
    changes: dict[str, Any] = {
        **SEALED,
        "search__space": {"schedule": "gen", "clipping": "automatic", "max_grad_norm": {"uniform": [0.8, 1.2]}},
    }

    def starts(training: PrivateTraining, spec: TrainingSpec, *rest: Any, **more: Any) -> None:  # noqa: ANN401
        init(training, spec, *rest, **more)
        rates.setdefault(spec.replay_key, []).append([])

    def notes(probes: LossProbes, *rest: Any, **more: Any) -> float:  # noqa: ANN401
        found = probe(probes, *rest, **more)
        next(reversed(rates.values()))[-1].append(found)
        return found

    monkeypatch.setattr(PrivateTraining, "__init__", starts)
    monkeypatch.setattr(LossProbes, "probe", notes)
    with monkeypatch.context() as patch:
        draw(patch, 2)
        raising_at(patch, 0, Died, after=3)
        run_until_death(tune.write(**changes))
    told = [each for each in rates.values() for each in each if each]
    assert len(told) == 1
    entries = tune.entries
    assert entries == ["open_search", "begin"], "all of it was charged before the first step"
    tune("resume", "tiny", "--local")
    assert tune.entries == entries, "the run that is made again is not charged again"
    first, second = rates.values()
    assert first[-1][: len(told[0])] == told[0]
    assert len(set(first[-1])) > 1, "the probes move the rate"
    assert first[-1] != second[-1]
    assert tune("export", "tiny", "--json").json["sweep"] == the_sweep(tune).id
    assert tune("verify", "exports/tiny/privacy_card.json", "--json").json["answer"] == "yes"
    assert "loss probes" in (tune.folder / "exports/tiny/privacy_card.md").read_text()
