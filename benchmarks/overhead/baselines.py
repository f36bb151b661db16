"""Trials that nothing is around: Ray's class API with reused actors, and a loop of Optuna that logs to MLflow.

    python -m benchmarks.overhead.baselines class_api|optuna_loop TRIALS

Each trial takes ten steps of SGD on a logistic regression of digits, as the trials of the compared sweep do.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

_STEPS = 10
_BATCH = 128


class Training:
    """Logistic regression on scikit-learn's digits."""

    def __init__(self, rate: float) -> None:
        import torch
        from sklearn.datasets import load_digits

        images, labels = load_digits(return_X_y=True)
        self._images = torch.tensor(images / 16, dtype=torch.float32)
        self._labels = torch.tensor(labels)
        self._model = torch.nn.Linear(64, 10)
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=rate)

    def step(self) -> None:
        """Take one step on a random batch."""
        import torch

        batch = torch.randint(len(self._images), (_BATCH,))
        self._optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(self._model(self._images[batch]), self._labels[batch])
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()

    def score(self) -> float:
        """Return the accuracy."""
        return float((self._model(self._images).argmax(1) == self._labels).float().mean())


def class_api(trials: int) -> int:
    """Run the trials on two slots by Ray Tune's class API, each with one report; return the number of processes."""
    import ray
    from ray import tune

    class Trial(tune.Trainable):
        def setup(self, config: dict[str, Any]) -> None:
            self._training = Training(config["rate"])

        def step(self) -> dict[str, Any]:
            for _ in range(_STEPS):
                self._training.step()
            return {"score": self._training.score(), "done": True}

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            self._training = Training(new_config["rate"])
            return True

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    tuner = tune.Tuner(
        Trial,
        param_space={"rate": tune.loguniform(0.1, 1.0)},
        # The two CPUs are the two slots. With `max_concurrent_trials`, Ray would not know the next trial when one ends,
        # and would start a new process for it.
        tune_config=tune.TuneConfig(num_samples=trials, reuse_actors=True, metric="score", mode="max"),
        run_config=tune.RunConfig(storage_path=str(Path.cwd() / "ray_results"), verbose=0),
    )
    processes = {found.metrics["pid"] for found in tuner.fit() if found.metrics}
    ray.shutdown()
    return len(processes)


def optuna_loop(trials: int) -> int:
    """Run the trials one by one, each in a run of MLflow with its parameter and its score, in one process."""
    import mlflow
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    mlflow.set_tracking_uri("sqlite:///mlflow.db")
    mlflow.set_experiment("trivial")

    def objective(trial: optuna.Trial) -> float:
        training = Training(trial.suggest_float("rate", 0.1, 1.0, log=True))
        with mlflow.start_run():
            mlflow.log_params(trial.params)
            for _ in range(_STEPS):
                training.step()
            score = training.score()
            mlflow.log_metric("score", score, step=_STEPS)
        return score

    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend("study.journal"))
    optuna.create_study(storage=storage, direction="maximize").optimize(objective, n_trials=trials)
    return 1


if __name__ == "__main__":
    print({"class_api": class_api, "optuna_loop": optuna_loop}[sys.argv[1]](int(sys.argv[2])))
