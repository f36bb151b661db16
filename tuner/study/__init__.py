"""Study: which configuration to try next, when to stop a trial, which trial is best. No Ray, no MLflow, no torch."""
