"""Inside pytest: record what runs and, after a crash, report what the crashed process ran and go on where it ended.

Nothing here reads cores: the supervisor does (`supervise`).
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Generator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Optional

import pytest

from crashkit.pytest_plugin import FOLDER
from crashkit.testrun import stacks, verdicts
from crashkit.testrun.journal import History, Journal, read

_REPORT_PATIENCE = 120.0
"""Seconds to wait for the report of a worker of pytest-xdist that died of a signal."""
_POLL = 0.05


def register(config: pytest.Config, folder: Path) -> None:
    """Make this pytest, or this worker of pytest-xdist, record what it runs in the folder of the session. Raises OSError."""
    told = verdicts.read(folder)
    recorder = Recorder(config, folder)
    config.pluginmanager.register(recorder, "crashkit-recorder")
    if told:
        config.pluginmanager.register(Continued(config, folder, told, recorder), "crashkit-continued")


class Recorder:
    """Writes the journal."""

    def __init__(self, config: pytest.Config, folder: Path) -> None:
        self._config = config
        self._folder = folder
        self._journal = Journal(folder)
        self._is_worker = hasattr(config, "workerinput")
        self.replays = False
        self._patience = float(config.getini("faulthandler_timeout") or 0.0)
        self._current, self._began = "", time.monotonic()
        self._timeout: Optional[ModuleType] = sys.modules.get("pytest_timeout")
        self._dump: Any = getattr(self._timeout, "dump_stacks", None)
        if self._dump is not None:
            self._timeout.dump_stacks = self._hang  # type: ignore[union-attr]
        os.register_at_fork(after_in_child=self._forked)
        self._journal.write("start", worker=getattr(config, "workerinput", {}).get("workerid"))

    def _hang(self, *arguments: Any, **options: Any) -> Any:
        """In place of pytest-timeout's dump_stacks: it knows the moment, and exits after it with `timeout_method = thread`."""
        text = stacks.dump(threading.main_thread(), sys._current_frames(), time.monotonic() - self._began)
        self._journal.write("hang", node=self._current, text=text)
        return self._dump(*arguments, **options)

    def _forked(self) -> None:
        if self._current:
            self._journal.write("fork", node=self._current)

    def pytest_unconfigure(self) -> None:
        """Leave pytest-timeout as it was."""
        if self._dump is not None:
            self._timeout.dump_stacks = self._dump  # type: ignore[union-attr]

    # Collection

    @pytest.hookimpl(tryfirst=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> None:
        if isinstance(collector, pytest.File):
            self._journal.write("collect", node=collector.nodeid)

    def pytest_collectreport(self) -> None:
        self._journal.write("collected")

    # Tests

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, None, None]:
        self._current, self._began = item.nodeid, time.monotonic()
        self._journal.write("begin", node=item.nodeid, patience=self._patience)
        yield
        self._journal.write("end", node=item.nodeid)
        self._current = ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self._phase(item, "setup")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> None:
        self._phase(item, "call")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        self._phase(item, "teardown")

    def _phase(self, item: pytest.Item, when: str) -> None:
        self._journal.write("phase", node=item.nodeid, when=when)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self._is_worker or self.replays:
            return
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._journal.write("report", node=report.nodeid, report=data)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        self._journal.write("finish")

    # pytest-xdist

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        if node.gateway.spec.popen:  # not on another machine
            node.workerinput[FOLDER] = str(self._folder)

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, report: pytest.TestReport) -> None:
        """A worker died: add its report to that of the test, as soon as it is there."""
        worker = getattr(report, "node", None)
        process = getattr(getattr(getattr(worker, "gateway", None), "_io", None), "popen", None)
        if process is None:
            return  # a worker on another machine
        status = process.wait()
        verdict = self._explain(process.pid, status)
        report.longrepr = f"{report.longrepr}\n{verdict}"

    def _explain(self, pid: int, status: int) -> str:
        from crashkit.naming.signals import DUMPS_CORE
        from crashkit.testrun import told

        until = time.monotonic() + (_REPORT_PATIENCE if -status in DUMPS_CORE else 0.0)
        while not told.of_process(self._folder, pid) and time.monotonic() < until:
            time.sleep(_POLL)
        return told.verdict(self._folder, History(read(self._folder)), pid, status)


class Continued:
    """In the process that continues after a crash: reports of the earlier processes, then the tests that are left."""

    def __init__(self, config: pytest.Config, folder: Path, told: verdicts.Verdicts, recorder: Recorder) -> None:
        self._config = config
        self._told = told
        self._recorder = recorder
        history = History(read(folder))
        self._done = history.done()
        self._reports = history.reports()

    @pytest.hookimpl(tryfirst=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Optional[pytest.CollectReport]:
        """Not again a file that killed pytest when it was imported."""
        told = self._told.get(collector.nodeid)
        if told is None or told.when != "collect":
            return None
        return pytest.CollectReport(collector.nodeid, "failed", told.text, [])

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Optional[bool]:
        """As pytest's own loop, but for what was run before."""
        if session.config.option.collectonly or (session.testsfailed and not session.config.option.continue_on_collection_errors):
            return None
        left = []
        for item in session.items:
            if item.nodeid in self._done or item.nodeid in self._told:
                self._replay(item)
            else:
                left.append(item)
        if left and not session.shouldfail and not session.config.option.crashkit_rerun:
            many = f"{len(left)} tests were" if len(left) > 1 else "1 test was"
            session.shouldfail = f"a test killed pytest, and {many} not run; --crashkit-rerun runs them in a fresh process"
        _stop(session)
        for index, item in enumerate(left):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=left[index + 1] if index + 1 < len(left) else None)
            _stop(session)
        return True

    def _replay(self, item: pytest.Item) -> None:
        hook = item.ihook
        self._recorder.replays = True
        try:
            hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
            for data in self._reports.get(item.nodeid, ()):
                hook.pytest_runtest_logreport(report=self._restored(data))
            if told := self._told.get(item.nodeid):
                hook.pytest_runtest_logreport(
                    report=pytest.TestReport(item.nodeid, item.location, {item.name: 1}, "failed", told.text, told.when)  # type: ignore[arg-type]
                )
            hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        finally:
            self._recorder.replays = False

    def _restored(self, data: Mapping[str, Any]) -> Any:
        return self._config.hook.pytest_report_from_serializable(config=self._config, data=dict(data))


def _stop(session: pytest.Session) -> None:
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
