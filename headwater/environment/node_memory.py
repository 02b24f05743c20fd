"""How the memory of EMR's nodes is shared out between the writer, YARN and Trino, so that the sum fits.

EMR gives YARN most of a core node, and Trino's heap comes on top. On the primary node the step's driver runs beside
Trino's coordinator and a dozen daemons. Amounts are in MiB. Trino's heap itself cannot be set, because jvm.config is
not configurable (https://docs.aws.amazon.com/emr/latest/ReleaseGuide/Trino-considerations.html). Its queries' memory
can be set.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headwater.contract.model import POSTGRESQL
from headwater.environment import allow_lists
from headwater.environment.model import Environment, Rule

# Estimates. Linux and EMR's agents, and the daemons: HDFS's NameNode, YARN's ResourceManager, Hive, the history servers
# and, if the environment asks for them, Hue and Livy on the primary node; DataNode and NodeManager on a core node.
PRIMARY_SYSTEM = 7168
CORE_SYSTEM = 3072
# DataNode and NodeManager, where the primary node is alone and has them too.
CORE_DAEMONS = 2048
# Of Trino's process beside what queries take and the headroom; of the driver's beside its heap, with its Python.
TRINO_PROCESS = 1024
DRIVER_PROCESS = 1024


@dataclass(frozen=True)
class Shares:
    """The shares of the memory of a cluster's nodes."""

    primary: int
    """The memory of the primary node, in MiB."""
    core: int
    """The memory of each core node, in MiB."""
    alone: bool
    """Whether there are no core nodes, so that the primary node does their work."""

    @property
    def driver_heap(self) -> int:
        """The heap of the step's driver."""
        return self.primary // 8

    @property
    def yarn(self) -> int:
        """What YARN gives to containers on a core node. The application master takes 1 GiB of it on one node."""
        return self.primary // 4 if self.alone else self.core // 2

    @property
    def executor_heap(self) -> int:
        """The heap of an executor; with ``executor_overhead`` it leaves a fourth of YARN's memory to others."""
        return self.yarn * 5 // 8

    @property
    def executor_overhead(self) -> int:
        """What an executor takes beside its heap, with its Python workers."""
        return self.yarn // 8

    @property
    def trino_query(self) -> int:
        """The most that one query of Trino takes on a node. Coordinator and workers have one setting."""
        return (self.primary if self.alone else min(self.primary, self.core)) // 8

    @property
    def trino_headroom(self) -> int:
        """The part of Trino's heap, in MiB, that queries may not use."""
        return self.trino_query // 2

    @property
    def primary_sum(self) -> int:
        """The memory that the primary node needs in all, in MiB."""
        of_core = CORE_DAEMONS + self.yarn if self.alone else 0
        return PRIMARY_SYSTEM + of_core + self.driver_heap + DRIVER_PROCESS + self._trino

    @property
    def core_sum(self) -> int:
        """The memory that a core node needs in all, in MiB."""
        return CORE_SYSTEM + self.yarn + self._trino

    @property
    def _trino(self) -> int:
        return self.trino_query + self.trino_headroom + TRINO_PROCESS


def shares(environment: Environment) -> Shares:
    """The shares on an environment's nodes."""
    emr = environment.postgresql.emr
    return Shares(
        allow_lists.memory_mib(emr.primary_type), allow_lists.memory_mib(emr.core_type), alone=emr.core_nodes == 0
    )


def rules(environment: Environment) -> Iterator[Rule]:
    """A rule for each kind of node: its memory is enough. There is none without EMR."""
    if not environment.describes(POSTGRESQL):
        return
    planned = shares(environment)
    sums = {"emr.primary_type": (planned.primary_sum, planned.primary)}
    if not planned.alone:
        sums["emr.core_type"] = (planned.core_sum, planned.core)
    for field, (needed, memory) in sums.items():
        yield Rule(field, needed <= memory, f"a type with more memory: {needed} MiB are needed, and it has {memory}")
