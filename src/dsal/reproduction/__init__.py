"""The paper's tables and figures; trainings that several of them need are run once."""
