"""Where the crashes of a CI job are: the address of its run, from the variables that the service sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Optional

from crashkit.secrets.text import Secrets


class Run(NamedTuple):
    """One run of a pipeline, and the job of it that found the crashes."""

    address: str
    """The run. Its jobs and attempts are no earlier ones of each other: their places all begin with it."""
    place: str
    """The job."""


_SERVICES = (
    # https://docs.github.com/actions/reference/variables-reference
    ("{GITHUB_SERVER_URL}/{GITHUB_REPOSITORY}/actions/runs/{GITHUB_RUN_ID}", "/attempts/{GITHUB_RUN_ATTEMPT}#{GITHUB_JOB}"),
    # https://docs.gitlab.com/ci/variables/predefined_variables/
    ("{CI_PIPELINE_URL}", "#{CI_JOB_ID}"),
    # https://buildkite.com/docs/pipelines/configure/environment-variables
    ("{BUILDKITE_BUILD_URL}", "#{BUILDKITE_JOB_ID}"),
    # https://circleci.com/docs/reference/variables/
    ("{CIRCLE_BUILD_URL}", "#{CIRCLE_NODE_INDEX}"),
    # https://learn.microsoft.com/azure/devops/pipelines/build/variables
    ("{SYSTEM_COLLECTIONURI}{SYSTEM_TEAMPROJECT}/_build/results?buildId={BUILD_BUILDID}", "#{SYSTEM_JOBID}"),
    # https://docs.travis-ci.com/user/environment-variables/
    ("{TRAVIS_BUILD_WEB_URL}", "#{TRAVIS_JOB_NUMBER}"),
    # https://www.jenkins.io/doc/book/pipeline/jenkinsfile/#using-environment-variables
    ("{BUILD_URL}", "#"),
)


def run_of(environment: Mapping[str, str]) -> Optional[Run]:
    """The run that the environment names; None outside of the services that are known."""
    known = {name: value for name, value in environment.items() if value}
    for run, job in _SERVICES:
        try:
            address = run.format_map(known).rstrip("/")
        except KeyError:
            continue
        address = Secrets().text(address)
        try:
            return Run(address, address + job.format_map(known))
        except KeyError:
            return Run(address, f"{address}#")
    return None
