"""Run the same commands on several processes with ``torchrun``: see docs/distributed.md.

Everywhere in the package all processes ("ranks") run the same code on the same data and divide the work. A function
that does so gets the team from :func:`current` and takes its part of the rows; the sums are reduced on rank 0. With one
process the team is :data:`ALONE`, and nothing is ever sent.
"""

from dsal.distributed.join import current, joined
from dsal.distributed.team import ALONE, Team

__all__ = ["ALONE", "Team", "current", "joined"]
