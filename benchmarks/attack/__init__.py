"""``dsal serve`` under attack: what it costs, what is lost, and whether its answers are true.

    python -m benchmarks.attack hostile      # 2,000 hostile requests beside honest clients
    python -m benchmarks.attack kills        # 200 kills and 100 terminations at random moments
    python -m benchmarks.attack mutations    # 10,000 damaged uploads
    python -m benchmarks.attack many         # 1,000 models, used in turn

Each adds its results to benchmarks/results/attack.json. Everything listens on this machine only.
"""
