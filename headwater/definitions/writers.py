"""The arguments of the writers' entry scripts, which the stacks and the local run share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class LakePlace:
    """The addresses of a lake."""

    uri: str
    """The ``s3://`` address of the lake's tables."""
    database: str
    """The lake's Glue database."""
    forget_secret: str
    """The name or ARN of the secret with the key for hashes of forgotten keys."""


class LakeSettings(Protocol):
    """The settings under ``lake`` in an environment's file that both writers use."""

    @property
    def max_quarantined_share(self) -> float:
        """The largest allowed share of undecodable records in a batch, 0 to 1."""

    @property
    def max_unfit_share(self) -> float:
        """The largest allowed share of rows with unfit values in a batch, 0 to 1."""

    @property
    def file_version_hours(self) -> float:
        """How many hours files stay after a compaction has replaced them."""

    @property
    def tombstone_days(self) -> float:
        """How many days tombstones stay."""


class LandedLakeSettings(LakeSettings, Protocol):
    """The settings under ``lake`` in an environment's file that the EMR step uses."""

    @property
    def landing_days(self) -> float:
        """How many days landing objects stay after they have been read."""


def step_arguments(
    contracts: Sequence[str],
    place: LakePlace,
    lake: LandedLakeSettings,
    *,
    landing: str,
    idle_seconds_max: float,
    awaits_backfill: bool,
) -> list[str]:
    """Return the arguments of the EMR step's script.

    - ``contracts``: the ``s3://`` addresses of the contracts' JSON.
    - ``place``: the addresses of the lake.
    - ``lake``: ``lake`` of the environment's file.
    - ``landing``: the ``s3://bucket/prefix`` of the landing objects.
    - ``idle_seconds_max``: ``emr.idle_seconds_max``.
    - ``awaits_backfill``: an empty table waits for the rows that ``headwater backfill`` loads.
    """
    arguments = {
        "--landing": landing,
        **_shared(place, lake),
        "--idle-seconds-max": str(idle_seconds_max),
        "--landing-days": str(lake.landing_days),
    }
    listed = [part for uri in contracts for part in ("--contract", uri)]
    pairs = [part for pair in arguments.items() for part in pair]
    return [*listed, *pairs, *(["--await-backfill"] if awaits_backfill else [])]


def job_arguments(
    contracts: Sequence[str],
    place: LakePlace,
    lake: LakeSettings,
    *,
    streams: Mapping[str, str],
    source_tables: Mapping[str, str],
    window_seconds: int,
    epoch: int,
    mask_secret: str | None,
) -> dict[str, str]:
    """Return the arguments of the Glue job's script. Lists are joined, because Glue passes each argument once.

    - ``contracts``: the ``s3://`` addresses of the contracts' JSON.
    - ``place``: the addresses of the lake.
    - ``lake``: ``lake`` of the environment's file.
    - ``streams``: the ARN of each lake table's Kinesis stream.
    - ``source_tables``: the name of each lake table's DynamoDB table.
    - ``window_seconds``: ``glue.window_seconds``.
    - ``epoch``: ``glue.epoch``.
    - ``mask_secret``: the name or ARN of the secret with the key of masks; None if no contract needs one.
    """
    return {
        "--contract": ",".join(contracts),
        "--stream-arn": _by_table(streams),
        "--source-table": _by_table(source_tables),
        **_shared(place, lake),
        "--window-seconds": str(window_seconds),
        "--epoch": str(epoch),
        **({} if mask_secret is None else {"--mask-secret": mask_secret}),
    }


def _shared(place: LakePlace, lake: LakeSettings) -> dict[str, str]:
    return {
        "--lake": place.uri,
        "--database": place.database,
        "--forget-secret": place.forget_secret,
        "--max-bad-share": str(lake.max_quarantined_share),
        "--max-unfit-share": str(lake.max_unfit_share),
        "--file-version-hours": str(lake.file_version_hours),
        "--tombstone-days": str(lake.tombstone_days),
    }


def _by_table(values: Mapping[str, str]) -> str:
    """Return an argument of the Glue job that has a value for each lake table."""
    return ",".join(f"{table}={value}" for table, value in values.items())
