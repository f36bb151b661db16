"""The private step against plain SGD, Opacus, torch.func and the naive loop."""
