"""The next word: public starts from the Brown corpus, and what private training makes of them.

    python -m benchmarks.next_word --only starts --out . [--models next_word_lstm]   the starts of the shipped files
    python -m benchmarks.next_word [--data-dir DATA] [--quick] [--out DIR] [--json]   the tables too

`starts` trains DPLIS' LSTM and perceptron on the Brown corpus without privacy, and writes OUT/MODEL.safetensors with
the epoch that is best on held-out documents of the corpus; a file that is there is kept. No address is read. `private`
trains on the State of the Union addresses from these weights and from random ones, for each record and for each
speaker, and shows the perplexity before and after. All learning rates that an arm tries share its ε. The rate is chosen
by validation records; the test records, which are all windows of one speaker, score the chosen run once.
"""

from __future__ import annotations

import argparse
import sys
from itertools import product
from pathlib import Path

import torch

from benchmarks.harness import Benchmark, Results, Section, Settings, Table, run
from benchmarks.next_word import private, starts
from trainables.data import data_folder
from trainables.data.text import documents, public_vocabulary
from trainables.start import StartWeights, read_start

EPOCHS = {"next_word_lstm": 6, "next_word_mlp": 2}
RATES = {
    ("record", True): (1.0, 3.0),
    ("record", False): (3.0, 8.0),
    ("user", True): (0.003, 0.03),
    ("user", False): (0.03, 0.3),
}
"""Learning rates that are tried by unit and by whether the weights are public, with automatic clipping."""


def make_starts(settings: Settings, results: Results) -> None:
    """Train and write the starts that are missing."""
    corpus = data_folder(settings.data_dir) / "brown_tokens.npz"
    vocabulary = public_vocabulary(corpus)
    texts = [torch.from_numpy(text.astype("int32")) for text in documents(corpus, vocabulary)]
    trained, held = starts.split(texts[:40] if settings.quick else texts)
    rows = []
    for name in settings.own.models:
        path = settings.out / f"{name}.safetensors"
        if not path.is_file():
            epochs = 1 if settings.quick else EPOCHS[name]
            made = starts.train(name, trained, held, classes=len(vocabulary) + 1, epochs=epochs, seed=settings.seed)
            scores = []
            for score, weights in made:
                scores.append(score)
                print(f"{name}: epoch {len(scores)}, perplexity {score:.1f} of held-out documents", flush=True)
                if score == min(scores):
                    starts.write(weights, path)
            results.count(f"brown_perplexity.{name}", min(scores), note="of held-out documents of the Brown corpus")
        rows.append((name, str(path), read_start(str(path)).sha256))
    results.tables["Starts"] = Table(("model", "file", "SHA-256"), tuple(rows))


def train_in_private(settings: Settings, results: Results) -> None:
    """Measure each unit, model and start."""
    rows = []
    for setting, name, public in product((private.RECORDS, private.SPEAKERS), settings.own.models, (True, False)):
        path = settings.out / f"{name}.safetensors"
        start = StartWeights(path=str(path), sha256=read_start(str(path)).sha256) if public else None
        rates = RATES[setting.unit, public][:1] if settings.quick else RATES[setting.unit, public]
        arm = private.Run(setting=setting, model=name, start=start, rates=rates, seed=settings.seed)
        found = private.measure(arm, data_dir=settings.data_dir)
        tried = ", ".join(f"{rate:g}: {score:.0f}" for rate, score in found.by_rate.items())
        rows.append(
            (
                f"{setting.unit}, ε = {setting.epsilon:g}, δ = {setting.delta:g}",
                name,
                "Brown" if public else "random",
                f"{found.noise_multiplier:.3g}",
                f"{found.before:.0f}",
                f"{found.after:.0f}",
                f"{found.test_before:.0f}",
                f"{found.test:.0f}",
                tried,
            )
        )
        print(*rows[-1], sep=" | ", flush=True)
        results.count(f"perplexity.{setting.unit}.{name}.{'brown' if public else 'random'}", found.after)
    columns = ("claim", "model", "start", "noise", "before", "after", "test before", "test after", "by rate")
    results.tables["Perplexity of the next word, before and after private training"] = Table(columns, tuple(rows))


def _data(_settings: Settings) -> tuple[str, ...]:
    return ("state_union",)  # which has the Brown corpus as one of its files


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--models", nargs="+", choices=tuple(EPOCHS), default=tuple(EPOCHS), help="models to train")


def main() -> int:
    """Run the benchmark."""
    benchmark = Benchmark(
        name="next_word",
        about=__doc__,
        sections={
            "starts": Section(measure=make_starts, datasets=_data),
            "private": Section(measure=train_in_private, datasets=_data),
        },
        seed=0,
        out=Path("next_word"),
        add_options=_add_options,
    )
    torch.set_num_threads(1)
    return run(benchmark)


if __name__ == "__main__":
    sys.exit(main())
