"""The theorem and the learner: expansion, streams, predictions, tuning, leaving one out. Closed form, float64."""
