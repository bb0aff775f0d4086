"""How fast learning is: against the authors' recursion, bare BLAS, scikit-learn, and over phases and widths.

    python -m benchmarks.speed                      # what there is, and how long each takes
    python -m benchmarks.speed recursion            # one of them, at full size
    python -m benchmarks.speed all --small          # all of them in a minute, to see that they run

Every benchmark prints a table and leaves ``NAME.json``, ``NAME.md`` and ``NAME.png`` in ``benchmarks/results/speed``,
with the conditions they were taken under. Contestants take turns, medians count.
"""
