"""The same commands on many processes, by ``torchrun``: see docs/distributed.md.

Everywhere in the package all processes ("ranks") run the same code on the same data; what is shared is the work. A
function that does so asks :func:`current` for the team, takes its share of the rows, and the sums meet on rank 0. With
one process the team is :data:`ALONE`, and nothing is ever sent.
"""

from dsal.distributed.join import current, joined
from dsal.distributed.team import ALONE, Team

__all__ = ["ALONE", "Team", "current", "joined"]
