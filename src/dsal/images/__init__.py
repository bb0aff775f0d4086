"""Own images: a backbone, a classifier and a sense for what was never taught, in one model and one file."""

from dsal.images.model import Evaluation, ImageModel, Lesson, Prediction, Predictions

__all__ = ["Evaluation", "ImageModel", "Lesson", "Prediction", "Predictions"]
