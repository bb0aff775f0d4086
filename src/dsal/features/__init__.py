"""From images to features: extraction and cache."""

from dsal.features.cache import cache_folder, cached_features
from dsal.features.extract import add_statistics, card_record, extract_dataset, feature_batches
from dsal.features.sharding import extract_shards

__all__ = [
    "add_statistics",
    "cache_folder",
    "cached_features",
    "card_record",
    "extract_dataset",
    "extract_shards",
    "feature_batches",
]
