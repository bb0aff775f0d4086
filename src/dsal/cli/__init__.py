"""The command line: parse, build, run, write. Nothing else in the package prints."""
