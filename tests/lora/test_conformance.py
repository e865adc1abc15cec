"""The participant keeps the promises of its kind."""

from framework.testing.conformance import check


def test_the_participant_conforms():
    report = check("scheduler_participant:lora", slowness=20.0)
    assert not report.failures, report.text()
