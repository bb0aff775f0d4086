"""Speed of learning: against the authors' recursion, bare BLAS and scikit-learn, and by number of phases and width.

    python -m benchmarks.speed                      # list the benchmarks, and how long each takes
    python -m benchmarks.speed recursion            # one of them, at full size
    python -m benchmarks.speed all --small          # all of them in a minute, to check that they run

Every benchmark prints a table and writes ``NAME.json``, ``NAME.md`` and ``NAME.png`` to ``benchmarks/results/speed``,
with the conditions of the measurement. Contestants take turns; medians are reported.
"""
