"""A right experiment file, to be changed by one line."""

from __future__ import annotations

GOOD = """\
schema: 1
name: a-search
seed: 3
dataset:
  name: digits
  validation: {fraction: 0.2, protected: false}
trainable:
  method: dplis
  model: mlp_64
  batch_size: 128
  epochs: 4
privacy:
  epsilon: 8
  delta: 1e-5
search:
  trials: 4
  sampler: tpe
  pruner: {name: median, n_startup_trials: 3}
  rungs: [0.5, 1.0]
  space:
    R: {log_uniform: [1, 40]}
    learning_rate: default
  metric: {name: validation_accuracy, mode: max}
resources: {concurrent_trials: 2}
"""
