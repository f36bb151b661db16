"""The differentially private methods on torch: hyper-parameters, models, data, the private step and the training."""
