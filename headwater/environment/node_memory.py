"""Divides the memory of EMR's nodes between the writer, YARN and Trino. Amounts are in MiB.

EMR's defaults give YARN most of a core node, and Trino's heap comes on top. On the primary node, the step's driver runs
beside Trino's coordinator and a dozen daemons. Trino's heap cannot be set, because jvm.config is not configurable
(https://docs.aws.amazon.com/emr/latest/ReleaseGuide/Trino-considerations.html). The memory of Trino's queries can be
set.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headwater.contract.model import POSTGRESQL
from headwater.environment import allow_lists
from headwater.environment.model import Environment, Rule

# All these amounts are estimates.
PRIMARY_SYSTEM = 7168
"""Linux, EMR's agents, NameNode, ResourceManager, Hive, history servers, and if configured Hue and Livy."""
CORE_SYSTEM = 3072
"""Linux, EMR's agents, DataNode and NodeManager on a core node."""
CORE_DAEMONS = 2048
"""DataNode and NodeManager on a primary node without core nodes."""
TRINO_PROCESS = 1024
"""Trino's process without the memory of queries and the headroom."""
DRIVER_PROCESS = 1024
"""The driver's process without its heap, including its Python process."""


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
        """The heap of the step's driver, in MiB."""
        return self.primary // 8

    @property
    def yarn(self) -> int:
        """The memory that YARN gives to containers on a core node. On one node the application master takes 1 GiB."""
        return self.primary // 4 if self.alone else self.core // 2

    @property
    def executor_heap(self) -> int:
        """The heap of an executor. Heap and ``executor_overhead`` leave a fourth of YARN's memory to others."""
        return self.yarn * 5 // 8

    @property
    def executor_overhead(self) -> int:
        """The memory of an executor and its Python workers beside its heap."""
        return self.yarn // 8

    @property
    def trino_query(self) -> int:
        """The largest memory that one Trino query may use on a node. Coordinator and workers share the setting."""
        return (self.primary if self.alone else min(self.primary, self.core)) // 8

    @property
    def trino_headroom(self) -> int:
        """The part of Trino's heap, in MiB, that queries may not use."""
        return self.trino_query // 2

    @property
    def primary_sum(self) -> int:
        """The memory that the primary node needs in total, in MiB."""
        of_core = CORE_DAEMONS + self.yarn if self.alone else 0
        return PRIMARY_SYSTEM + of_core + self.driver_heap + DRIVER_PROCESS + self._trino

    @property
    def core_sum(self) -> int:
        """The memory that a core node needs in total, in MiB."""
        return CORE_SYSTEM + self.yarn + self._trino

    @property
    def _trino(self) -> int:
        return self.trino_query + self.trino_headroom + TRINO_PROCESS


def shares(environment: Environment) -> Shares:
    """Return the shares of the memory of an environment's nodes."""
    emr = environment.postgresql.emr
    return Shares(
        allow_lists.memory_mib(emr.primary_type), allow_lists.memory_mib(emr.core_type), alone=emr.core_nodes == 0
    )


def rules(environment: Environment) -> Iterator[Rule]:
    """Yield a rule for each kind of node that checks its memory; no rule without EMR."""
    if not environment.describes(POSTGRESQL):
        return
    planned = shares(environment)
    sums = {"emr.primary_type": (planned.primary_sum, planned.primary)}
    if not planned.alone:
        sums["emr.core_type"] = (planned.core_sum, planned.core)
    for field, (needed, memory) in sums.items():
        yield Rule(field, needed <= memory, f"a type with more memory: it has {memory} MiB, and needs {needed} MiB")
