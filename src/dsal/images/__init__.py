"""Own images: a backbone, a classifier and a sense for what was never taught, in one model and one file."""

from dsal.images.answers import Evaluation, Lesson, Prediction, Predictions
from dsal.images.model import ImageModel

__all__ = ["Evaluation", "ImageModel", "Lesson", "Prediction", "Predictions"]
