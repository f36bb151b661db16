"""The unimodal sampler and pruner in a plain Optuna study: no Ray, no privacy, only a score with one top.

    python examples/unimodal_in_optuna.py

Searched is the L2 penalty of a linear model on scikit-learn's digits: too little of it overfits, too much underfits.
"""

from __future__ import annotations

import optuna
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split

from tuner.study.unimodal.pruner import UnimodalPruner
from tuner.study.unimodal.sampler import UnimodalSampler

EPOCHS = 9
TRIALS = 20
TOLERANCE = 0.01
"""A difference of one point of accuracy does not matter."""

images, digits = load_digits(return_X_y=True)
x_train, x_test, y_train, y_test = train_test_split(images / 16, digits, test_size=0.4, random_state=0)


def train(trial: optuna.Trial) -> float | None:
    """Accuracy after the last epoch; None when the trial was stopped, or need not start."""
    penalty = trial.suggest_float("penalty", 1e-6, 10.0, log=True)
    if trial.should_prune():  # before its first report: its value is excluded already
        return None
    model, accuracy = SGDClassifier(alpha=penalty, random_state=trial.number), 0.0
    for epoch in range(1, EPOCHS + 1):
        model.partial_fit(x_train, y_train, classes=range(10))
        accuracy = float(model.score(x_test, y_test))
        if epoch % 3 == 0:
            trial.report(accuracy, epoch)
            if epoch < EPOCHS and trial.should_prune():
                return None
    return accuracy


def main() -> None:
    """Search until it is sure, or has had its trials."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    starts = (1e-4, 1e-1)
    sampler = UnimodalSampler("penalty", tolerance=TOLERANCE, last_step=EPOCHS, starts=starts, seed=0)
    pruner = UnimodalPruner("penalty", tolerance=TOLERANCE, last_step=EPOCHS, starts=starts)
    study = optuna.create_study(direction="maximize", sampler=sampler, pruner=pruner)
    while len(study.trials) < TRIALS and not sampler.is_over(study):
        trial = study.ask()
        accuracy = train(trial)
        pruned = optuna.trial.TrialState.PRUNED if accuracy is None else None
        frozen = study.tell(trial, accuracy, state=pruned)
        said = f" ({pruner.why(study, frozen)})" if pruned else ""
        print(f"trial {frozen.number}: penalty {frozen.params['penalty']:.3g} {frozen.state.name.lower()}{said}")
    best = sampler.best_trial(study)
    if best is not None:
        found = study.trials[best]
        print(f"best: trial {best}, penalty {found.params['penalty']:.3g}, accuracy {found.value:.3f}")


if __name__ == "__main__":
    main()
