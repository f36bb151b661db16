"""Differentially private training on torch: methods, hyper-parameters, models, data sets and the private step."""
