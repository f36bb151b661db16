"""Accuracy and optimality gap of input, output and objective perturbation and full-batch private descent, by ε.

    python -m benchmarks.convex [--data-dir DATA] [--quick] [--only SET ...] [--repeats N] [--out DIR] [--json]

Logistic regression on Adult, Bank, Breast Cancer Wisconsin, Iris, KDD Cup 99 and Credit Card, at δ = n^-1.1. Every
private method is charged for one run at each ε. Its settings are chosen on validation records, whose use is outside the
guarantee, and which the choice of the best of several runs favours in all methods alike; the test accuracy of the
choice is shown. The gap is the loss on the training records, with λ = 1e-3 and the same clip, minus its minimum: it is
computed from the records and is for this study only. One plot a set is written to DIR.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import torch
from torch import Tensor

from trainables.convex.descent import private_descent
from trainables.convex.logistic import Problem, minimum, problem_of
from trainables.convex.objective import objective_perturbation
from trainables.convex.output import output_perturbation
from trainables.data import DATASETS, DatasetRequest, load_records, public_train_size
from trainables.engine.random import SecureGenerator
from trainables.release.draw import Randomiser, noisy_rows
from trainables.release.loss import debiased_cross_entropy, label_weights
from tuner.figures import BLACK, BLUE, GREEN, ORANGE, PURPLE, RED, new_figure, styled, svg_text
from tuner.privacy.accountant.noisy_records import calibrate_release
from tuner.privacy.accountant.pld import calibrate_noise
from tuner.privacy.accountant.shuffled_rows import calibrate_shuffled

SETS = ("adult", "bank", "breast_cancer_wisconsin", "iris", "kddcup99", "credit_card")
EPSILONS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
DECAYS = (1e-3, 1e-2, 1e-1, 1.0)
CLIP, DECAY, TOLERANCE, SHARE = 1.5, 1e-3, 1e-9, 0.3
COLOURS = {
    "not private": BLACK,
    "input, local": PURPLE,
    "input, central": BLUE,
    "output": ORANGE,
    "objective": RED,
    "descent": GREEN,
}


@dataclass(frozen=True)
class Task:
    """Records of one set, and what is public about it."""

    name: str
    x: Tensor
    y: Tensor
    validation: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    classes: int
    size: int

    @property
    def delta(self) -> float:
        """δ = n^-1.1."""
        return float(self.size**-1.1)

    def problem(self, decay: float = DECAY) -> Problem:
        """Return the problem with this L2 coefficient."""
        return problem_of(self.x, self.y, classes=self.classes, clip=CLIP, normaliser=self.size, weight_decay=decay)

    def accuracy(self, theta: Tensor, records: tuple[Tensor, Tensor]) -> float:
        """Return the accuracy of θ on records, which are clipped as the training records are."""
        held = problem_of(*records, classes=self.classes, clip=CLIP, normaliser=1, weight_decay=DECAY)
        answers = (held.x @ theta.reshape(self.classes, -1).T).argmax(1)
        return float((answers == held.y).double().mean())


def load(name: str, data_dir: str | None) -> Task:
    """Return a set with a tenth of its training records for validation (a fifth of a small set)."""
    fraction = 0.1 if DATASETS[name].public_train_size > 5000 else 0.2
    request = DatasetRequest(name=name, data_dir=data_dir, validation_fraction=fraction)
    splits = load_records(request)
    return Task(
        name,
        splits.x_train,
        splits.y_train,
        (splits.x_validation, splits.y_validation),
        (splits.x_test, splits.y_test),
        DATASETS[name].classes,
        public_train_size(request),
    )


def released(task: Task, epsilon: float, *, central: bool) -> Iterator[Tensor]:
    """Yield models that were trained on one release, for several λ and gains."""
    asked = {"clip": CLIP, "label_share": SHARE, "classes": task.classes, "epsilon": epsilon, "delta": task.delta}
    planned = calibrate_shuffled(rows=task.size, **asked)[0] if central else calibrate_release(**asked)
    randomiser = Randomiser(clip=CLIP, noise=planned.noise, label_epsilon=planned.label_epsilon, classes=task.classes)
    release = noisy_rows(task.x, task.y, randomiser, rows=task.size)
    weights = label_weights(randomiser.kept, task.classes)
    x = torch.cat([release.x, torch.ones(len(release.x), 1)], 1)
    for decay in (1e-3, 1e-1, 1.0):
        theta = torch.zeros(task.classes, x.shape[1], requires_grad=True)
        rate = 1 / (0.5 * (float((x**2).sum(1).mean()) / x.shape[1] * 4 + 1) + decay)
        for _ in range(100):
            loss = debiased_cross_entropy(x @ theta.T, release.y, weights) + decay / 2 * (theta**2).sum()
            (gradient,) = torch.autograd.grad(loss, theta)
            theta = (theta - rate * gradient).detach().requires_grad_()
        for gain in (1.0, 3.0, 10.0, 30.0, 100.0):
            scaled = theta.detach().double().clone()
            scaled[:, :-1] *= gain
            yield scaled.reshape(-1)


def perturbed(task: Task, epsilon: float) -> Iterator[Tensor]:
    """Yield perturbed minima for several λ. Each is charged by itself; none is part of a search here."""
    noise = calibrate_noise(sample_rate=1.0, steps=1, epsilon=epsilon, delta=task.delta)
    for decay in DECAYS:
        yield output_perturbation(task.problem(decay), clip=CLIP, noise_multiplier=noise, tolerance=TOLERANCE)


def tilted(task: Task, epsilon: float) -> Iterator[Tensor]:
    """Yield minima of perturbed objectives for several λ, each charged by itself."""
    noise = calibrate_noise(sample_rate=1.0, steps=1, epsilon=epsilon, delta=task.delta)
    for decay in DECAYS:
        yield objective_perturbation(task.problem(decay), clip=CLIP, noise_multiplier=noise, tolerance=TOLERANCE)


def descended(task: Task, epsilon: float) -> Iterator[Tensor]:
    """Yield private descents for several numbers of steps and rates."""
    for steps, rate in product((10, 50), (0.3, 1.0, 3.0)):
        noise = calibrate_noise(sample_rate=1.0, steps=steps, epsilon=epsilon, delta=task.delta)
        yield private_descent(
            task.problem(), clip=CLIP, steps=steps, learning_rate=rate, noise_multiplier=noise,
            generator=SecureGenerator(),
        )  # fmt: skip


METHODS: Mapping[str, Callable[[Task, float], Iterator[Tensor]]] = {
    "input, local": lambda task, epsilon: released(task, epsilon, central=False),
    "input, central": lambda task, epsilon: released(task, epsilon, central=True),
    "output": perturbed,
    "objective": tilted,
    "descent": descended,
}


def measure(task: Task, epsilons: tuple[float, ...], repeats: int) -> Iterator[dict[str, object]]:
    """Yield a row for each method, ε and repeat."""
    problem = task.problem()
    best = minimum(problem, tolerance=TOLERANCE)
    least = float(problem.loss(best))
    yield {"set": task.name, "method": "not private", "accuracy": task.accuracy(best, task.test), "gap": 0.0}
    for epsilon, (method, run), repeat in product(epsilons, METHODS.items(), range(repeats)):
        begun = time.process_time()
        theta = max(run(task, epsilon), key=lambda each: task.accuracy(each, task.validation))
        yield {
            "set": task.name,
            "method": method,
            "epsilon": epsilon,
            "delta": task.delta,
            "repeat": repeat,
            "accuracy": task.accuracy(theta, task.test),
            "gap": float(problem.loss(theta)) - least,
            "seconds": round(time.process_time() - begun, 2),
        }


@styled()
def plot(name: str, rows: list[dict[str, object]], path: Path) -> None:
    """Write one SVG: accuracy and gap by ε."""
    figure = new_figure(9.0, 3.6)
    axes = figure.subplots(1, 2)
    for method, colour in COLOURS.items():
        mine = [row for row in rows if row["method"] == method]
        if method == "not private":
            axes[0].axhline(float(str(mine[0]["accuracy"])), color=colour, linestyle="--", label=method)
            continue
        points = sorted({float(str(row["epsilon"])) for row in mine})
        for part, key in zip(axes, ("accuracy", "gap"), strict=True):
            means = []
            for point in points:
                values = [float(str(row[key])) for row in mine if row["epsilon"] == point]
                means.append(sum(values) / len(values))
            part.plot(points, means, color=colour, marker="o", markersize=4, label=method)
    axes[0].set(xlabel="ε", ylabel="test accuracy", xscale="log", title=name)
    axes[1].set(xlabel="ε", ylabel="optimality gap", xscale="log", yscale="log")
    for axis in (axes[0].xaxis, axes[1].xaxis, axes[1].yaxis):
        axis.set_major_formatter("{x:g}")  # the style writes no mathematics
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=6)
    path.write_text(svg_text(figure, name, "accuracy and optimality gap by epsilon"))


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir")
    parser.add_argument("--quick", action="store_true", help="three ε and the three small sets")
    parser.add_argument("--only", nargs="+", choices=SETS)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("convex"))
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    small = ("breast_cancer_wisconsin", "iris", "credit_card")
    names = asked.only or (small if asked.quick else SETS)
    epsilons = (0.1, 1.0, 8.0) if asked.quick else EPSILONS
    asked.out.mkdir(parents=True, exist_ok=True)
    every: list[dict[str, object]] = []
    for name in names:
        rows = list(measure(load(name, asked.data_dir), epsilons, asked.repeats))
        every += rows
        plot(name, rows, asked.out / f"{name}.svg")
        for row in [] if asked.json else rows:
            print(*(f"{value:.4g}" if isinstance(value, float) else value for value in row.values()))
    if asked.json:
        print(json.dumps(every))
    return 0


if __name__ == "__main__":
    sys.exit(main())
