"""The second accountant: numpy and the standard library, nothing of the accountant whose claims it checks."""
