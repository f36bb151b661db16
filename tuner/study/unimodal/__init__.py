"""What a search may conclude from scores that are unimodal in one parameter: pure numpy and scipy, no Optuna."""
