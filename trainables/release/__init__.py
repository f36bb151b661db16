"""Input perturbation: one noisy copy of the records (`draw`), and trainings that read it and no record (`training`)."""
