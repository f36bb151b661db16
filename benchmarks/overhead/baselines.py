"""Trials that nothing is around: Ray's class API with reused actors, and a loop of Optuna that logs to MLflow.

    python -m benchmarks.overhead.baselines class_api|optuna_loop TRIALS

Each trial is the private training of the compared sweep, without ledger and checkpoints: ten steps of DP-SGD on a
logistic regression of digits, with a score after every second one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainables.training import PrivateTraining

_STEPS = 10
_REPORTS = 5
_BATCH = 128


def training(rate: float) -> PrivateTraining:
    """Return the training of a trial of the compared sweep, which charges nothing."""
    from search_spaces.common import AVERAGED, CHOSEN
    from trainables import data
    from trainables.charge import NoCharge
    from trainables.spec import TrainingSpec
    from trainables.training import PrivateTraining

    records = data.DatasetRequest(name="digits")
    return PrivateTraining(
        TrainingSpec(
            method="dp_sgd", model="logistic_regression", dataset=records, batch_size=_BATCH, steps=_STEPS,
            noise_multiplier=1.0, sample_rate=1 / _STEPS, threads=1,
            parameters={"learning_rate": rate, "ema_decay": AVERAGED, "extrapolation": CHOSEN},
        ),
        NoCharge(),
    )  # fmt: skip


def scores_of(trained: PrivateTraining) -> Iterator[tuple[int, float]]:
    """Train, and yield the number of steps and the score at each report."""
    for step in range(_STEPS // _REPORTS, _STEPS + 1, _STEPS // _REPORTS):
        trained.run_to(step)
        yield step, trained.evaluate()["validation_accuracy"]


def class_api(trials: int) -> int:
    """Run the trials on two slots by Ray Tune's class API; return the number of processes."""
    import ray
    from ray import tune

    class Trial(tune.Trainable):
        def setup(self, config: dict[str, Any]) -> None:
            self._scores = scores_of(training(config["rate"]))

        def step(self) -> dict[str, Any]:
            step, score = next(self._scores)
            return {"score": score, "done": step == _STEPS}

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            self.setup(new_config)
            return True

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    tuner = tune.Tuner(
        Trial,
        param_space={"rate": tune.loguniform(0.1, 1.0)},
        # The two CPUs are the two slots. With `max_concurrent_trials`, Ray would not know the next trial when one ends,
        # and would start a new process for it.
        tune_config=tune.TuneConfig(num_samples=trials, reuse_actors=True, metric="score", mode="max"),
        run_config=tune.RunConfig(
            storage_path=str(Path.cwd() / "ray_results"),
            # By default the class API saves each trial at its end, and a class that cannot save fails there.
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            failure_config=tune.FailureConfig(fail_fast=True),
            verbose=0,
        ),
    )
    found = tuner.fit()
    ray.shutdown()
    if found.errors:
        raise found.errors[0]
    return len({each.metrics["pid"] for each in found if each.metrics})


def optuna_loop(trials: int) -> int:
    """Run the trials one by one, each in a run of MLflow with its parameter and its score, in one process."""
    import mlflow
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    mlflow.set_tracking_uri("sqlite:///mlflow.db")
    mlflow.set_experiment("trivial")

    def objective(trial: optuna.Trial) -> float:
        trained = training(trial.suggest_float("rate", 0.1, 1.0, log=True))
        score = 0.0
        with mlflow.start_run():
            mlflow.log_params(trial.params)
            for step, score in scores_of(trained):
                trial.report(score, step)
                mlflow.log_metric("score", score, step=step)
        return score

    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend("study.journal"))
    optuna.create_study(storage=storage, direction="maximize").optimize(objective, n_trials=trials)
    return 1


if __name__ == "__main__":
    print({"class_api": class_api, "optuna_loop": optuna_loop}[sys.argv[1]](int(sys.argv[2])))
