"""The paper's tables and figures, each in a short file; shared trainings are run once."""
