"""The arguments of the writers' entry scripts, the same for the stacks and for the parts on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class LakePlace:
    """The place of a lake."""

    uri: str
    """The ``s3://`` address of its tables."""
    database: str
    """Its Glue database."""
    forget_secret: str
    """Name or ARN of the secret with the key of forgotten keys' hashes."""


class LakeSettings(Protocol):
    """The settings under ``lake`` of an environment's file that both writers have."""

    @property
    def max_quarantined_share(self) -> float:
        """The largest share of undecodable records in a batch, 0 to 1."""

    @property
    def max_unfit_share(self) -> float:
        """The largest share of rows with unfit values in a batch, 0 to 1."""

    @property
    def file_version_hours(self) -> float:
        """How many hours files stay after a compaction has replaced them."""

    @property
    def tombstone_days(self) -> float:
        """How many days tombstones stay."""


class LandedLakeSettings(LakeSettings, Protocol):
    """The settings under ``lake`` of an environment's file that the EMR step has."""

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

    Args:
        contracts: ``s3://`` addresses of the contracts' JSON.
        place: The lake.
        lake: ``lake`` of the environment's file.
        landing: ``s3://bucket/prefix`` of the landing objects.
        idle_seconds_max: ``emr.idle_seconds_max``.
        awaits_backfill: Whether an empty table begins with the rows that ``headwater backfill`` loads.
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
    """Return the arguments of the Glue job's script. Glue passes each argument once, so that lists are joined.

    Args:
        contracts: ``s3://`` addresses of the contracts' JSON.
        place: The lake.
        lake: ``lake`` of the environment's file.
        streams: ARN of the Kinesis stream of each lake table.
        source_tables: Name of the DynamoDB table of each lake table.
        window_seconds: ``glue.window_seconds``.
        epoch: ``glue.epoch``.
        mask_secret: Name or ARN of the secret with the key of masks, or None if no contract needs it.
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
    """Return an argument of the Glue job that differs by lake table."""
    return ",".join(f"{table}={value}" for table, value in values.items())
