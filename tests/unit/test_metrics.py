import threading
from typing import Any, Literal

import pytest

from headwater.lake.base import metrics
from headwater.lake.base.metrics import CloudWatchReport, impatient_client, to_all


class CloudWatch:
    """Keeps what it is sent, or refuses it."""

    def __init__(self) -> None:
        self.refuses = False
        self.requests: list[dict[str, Any]] = []

    def put_metric_data(self, **request: Any) -> None:
        if self.refuses:
            raise ConnectionError("no route to CloudWatch")
        self.requests.append(request)

    def sent(self, table: str) -> dict[str, Any]:
        """A table's metrics in the last request: a sum, or counts by value."""
        metrics_sent: dict[str, Any] = {}
        for datum in self.requests[-1]["MetricData"]:
            if {"Name": metrics.TABLE, "Value": table} in datum["Dimensions"]:
                values = dict(zip(datum.get("Values", ()), datum.get("Counts", ()), strict=True))
                metrics_sent[datum["MetricName"]] = datum.get("Value", values)
        return metrics_sent


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def commit(table: str = "orders", changes: int = 5, oldest: float | None = 98.0) -> dict[str, Any]:
    return {
        "event": "commit",
        "table": table,
        "changes": changes,
        "seconds": 1.234,
        "completed_at": 100.0,
        "oldest_source_at": oldest,
    }


@pytest.fixture
def cloudwatch() -> CloudWatch:
    return CloudWatch()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def report(cloudwatch: CloudWatch, clock: Clock) -> CloudWatchReport:
    return CloudWatchReport(cloudwatch, "headwater_dev", every=60, clock=clock)


def test_the_events_of_a_minute_go_in_one_request(
    cloudwatch: CloudWatch, clock: Clock, report: CloudWatchReport
) -> None:
    report(commit())
    report(commit(changes=2, oldest=97.0))
    report(commit("customers"))
    report({"event": "quarantine", "table": "orders", "records": 3, "object": "s3://lake/_quarantine/x"})
    assert cloudwatch.requests == []
    clock.now = 60.0
    report({"event": "idle", "table": "orders"})
    assert len(cloudwatch.requests) == 1
    assert cloudwatch.requests[0]["Namespace"] == "Headwater"
    assert cloudwatch.sent("orders") == {
        "Changes": 7.0,
        "QuarantinedRecords": 3.0,
        "Freshness": {2.0: 1.0, 3.0: 1.0},
        "CommitSeconds": {1.2: 2.0},
    }
    assert cloudwatch.sent("customers")["Changes"] == 5.0


def test_unfit_values_are_sent_where_there_are_any(cloudwatch: CloudWatch, report: CloudWatchReport) -> None:
    report({**commit(), "unfit": 0})
    report.flush()
    assert "UnfitValues" not in cloudwatch.sent("orders")
    report({**commit(), "unfit": 2})
    report({**commit(), "unfit": 3})
    report.flush()
    assert cloudwatch.sent("orders")["UnfitValues"] == 5.0


def test_attributes_left_out_are_sent_where_there_are_any(cloudwatch: CloudWatch, report: CloudWatchReport) -> None:
    report({**commit(), "left_out": 0})
    report.flush()
    assert "LeftOutAttributes" not in cloudwatch.sent("orders")
    report({**commit(), "left_out": 2})
    report({**commit(), "left_out": 3})
    report.flush()
    assert cloudwatch.sent("orders")["LeftOutAttributes"] == 5.0


def test_metrics_name_database_and_table(cloudwatch: CloudWatch, report: CloudWatchReport) -> None:
    report(commit())
    report.flush()
    dimensions = [{"Name": "Database", "Value": "headwater_dev"}, {"Name": "Table", "Value": "orders"}]
    assert all(datum["Dimensions"] == dimensions for datum in cloudwatch.requests[0]["MetricData"])


def test_metrics_have_their_units_and_counts_add_up(cloudwatch: CloudWatch, report: CloudWatchReport) -> None:
    report(commit())
    for records in (3, 4):
        report({"event": "quarantine", "table": "orders", "records": records})
    report.flush()
    units = {datum["MetricName"]: datum["Unit"] for datum in cloudwatch.requests[0]["MetricData"]}
    assert units == {
        "Changes": "Count",
        "QuarantinedRecords": "Count",
        "Freshness": "Seconds",
        "CommitSeconds": "Seconds",
    }
    assert cloudwatch.sent("orders")["QuarantinedRecords"] == 7.0


@pytest.mark.parametrize("service", ["cloudwatch", "events"])
def test_a_client_for_a_writer_tries_once_and_waits_for_seconds(
    service: Literal["cloudwatch", "events"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    client = impatient_client(service)
    assert client.meta.service_model.service_name == service
    config = client.meta.config
    assert (config.connect_timeout, config.read_timeout, config.retries["total_max_attempts"]) == (2, 3, 1)


def test_an_idle_writer_says_that_it_lives(cloudwatch: CloudWatch, report: CloudWatchReport) -> None:
    report({"event": "idle", "table": "orders"})
    report.flush()
    assert cloudwatch.sent("orders") == {"Changes": 0.0, "QuarantinedRecords": 0.0}


def test_a_writer_that_reports_nothing_sends_nothing(cloudwatch: CloudWatch, report: CloudWatchReport) -> None:
    report({"event": "started", "tables": ["orders"]})
    report({"event": "resumed", "table": "orders"})
    report.flush()
    assert cloudwatch.requests == []


def test_a_commit_without_a_source_time_has_no_freshness(cloudwatch: CloudWatch, report: CloudWatchReport) -> None:
    report(commit(oldest=None))
    report.flush()
    assert "Freshness" not in cloudwatch.sent("orders")


def test_a_source_clock_ahead_of_ours_is_not_below_zero(cloudwatch: CloudWatch, report: CloudWatchReport) -> None:
    report(commit(oldest=101.0))
    report.flush()
    assert cloudwatch.sent("orders")["Freshness"] == {0.0: 1.0}


def test_a_refused_request_fails_no_writer_and_keeps_its_counts(
    cloudwatch: CloudWatch, clock: Clock, report: CloudWatchReport, capsys: pytest.CaptureFixture[str]
) -> None:
    cloudwatch.refuses = True
    clock.now = 60.0
    report(commit(oldest=0.0))
    report({"event": "quarantine", "table": "orders", "records": 3})
    assert "CloudWatch refused metrics: ConnectionError: no route" in capsys.readouterr().err
    cloudwatch.refuses = False
    report(commit(oldest=99.0))
    report.flush()
    # The refused freshness is dropped: by now it would be told of the wrong minute.
    assert cloudwatch.sent("orders") == {
        "Changes": 10.0,
        "QuarantinedRecords": 3.0,
        "Freshness": {1.0: 1.0},
        "CommitSeconds": {1.2: 1.0},
    }


def test_no_datum_has_more_values_than_cloudwatch_takes(cloudwatch: CloudWatch, report: CloudWatchReport) -> None:
    for second in range(400):
        report(commit(oldest=100.0 - second))
    report.flush()
    freshness = [datum for datum in cloudwatch.requests[0]["MetricData"] if datum["MetricName"] == "Freshness"]
    assert [len(datum["Values"]) for datum in freshness] == [150, 150, 100]
    assert all(len(datum["Values"]) == len(datum["Counts"]) for datum in freshness)


def test_nothing_is_lost_where_many_threads_report(cloudwatch: CloudWatch) -> None:
    report = CloudWatchReport(cloudwatch, "headwater_dev", every=0)

    def commit_often() -> None:
        for _ in range(200):
            report(commit())

    threads = [threading.Thread(target=commit_often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    report.flush()
    changes = [
        datum["Value"]
        for request in cloudwatch.requests
        for datum in request["MetricData"]
        if datum["MetricName"] == "Changes"
    ]
    assert sum(changes) == 4 * 200 * 5


def test_every_report_gets_each_event() -> None:
    first: list[dict[str, Any]] = []
    second: list[dict[str, Any]] = []
    to_all(first.append, second.append)({"event": "idle", "table": "orders"})
    assert first == second == [{"event": "idle", "table": "orders"}]
