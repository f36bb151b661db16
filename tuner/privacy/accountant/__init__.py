"""The privacy accountant. It defines mechanisms and privacy filters, computes ε and calibrates the noise."""
