"""From images to features: extraction, cache, and the refusal of weights that know too much."""

from dsal.features.cache import cache_folder, cached_features
from dsal.features.extract import add_statistics, card_record, extract_dataset, feature_batches
from dsal.features.leak import Origin, check_no_leak

__all__ = [
    "Origin",
    "add_statistics",
    "cache_folder",
    "cached_features",
    "card_record",
    "check_no_leak",
    "extract_dataset",
    "feature_batches",
]
