"""The Flower app is a program of its own, not a module with doctests."""

collect_ignore = ["flower_app"]
