"""Audit of the claim: known breaks, what the state shows, canaries, planted faults and forgeries."""
