"""Run the same commands on several processes with ``torchrun``: see docs/distributed.md.

Everywhere in the package all processes ("ranks") run the same code on the same data and divide the work. A function
that does so takes the team as an argument, and its own part of the rows; the sums are reduced on rank 0. With one
process the team is :data:`ALONE`, the default, and nothing is ever sent. There is no global team: the command line
joins the processes (:func:`join_processes`) and passes the team down.
"""

from dsal.distributed.join import join_processes
from dsal.distributed.team import ALONE, Team

__all__ = ["ALONE", "Team", "join_processes"]
