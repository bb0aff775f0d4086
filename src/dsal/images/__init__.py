"""Own images: a backbone, a classifier and a sense for what was never taught, in one model and one file."""

from dsal.images.answers import Evaluation, Lesson, Prediction, Predictions
from dsal.images.model import ImageModel
from dsal.images.transformer import ImageFeatures

__all__ = ["Evaluation", "ImageFeatures", "ImageModel", "Lesson", "Prediction", "Predictions"]
