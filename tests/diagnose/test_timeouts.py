"""Time limits that programs set themselves are told from crashes: on what real programs printed, and on what looks like it."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashkit.diagnose import diagnose, load_catalog
from crashkit.errors import EvidenceError
from crashkit.evidence.text.log import crash_of_log, read_log
from crashkit.model import Crash, Finding
from crashkit.pipeline import analyze

from .synthetic import crash, lines

LOGS = Path(__file__).parents[2] / "fixtures" / "timeouts"

RECORDED = {
    "celery-hard": ("certain", "timeout-task"),
    "celery-soft": ("certain", "timeout-task"),
    "dataloader": ("certain", "timeout-dataloader"),
    "elastic-timer": ("certain", "timeout-elastic-timer"),
    "faulthandler": ("certain", "hang-faulthandler-timeout"),
    "faulthandler-exit": ("certain", "hang-faulthandler-timeout"),
    "gunicorn-native": ("certain", "timeout-server-worker"),
    "gunicorn-timeout": ("certain", "timeout-server-worker"),
    "pytest-signal": ("certain", "timeout-pytest"),
    "pytest-thread": ("certain", "timeout-pytest"),
    "torchrun-timer": ("certain", "timeout-elastic-timer"),
    "uvicorn-shutdown": ("certain", "timeout-uvicorn-shutdown"),
    "uvicorn-unresponsive": ("possible", "timeout-uvicorn-worker"),
    # What uvicorn says of a crash is the same.
    "uvicorn-crash": ("possible", "timeout-uvicorn-worker"),
}
OTHERS = {
    "celery-crash": "supervisor-worker-crashed",
    "gunicorn-crash": "supervisor-worker-crashed",
    "pytest-own": None,
    "torchrun-timer-in-time": None,
    "uvicorn-shutdown-in-time": None,
}

# Texts of programs that do not run here, as their sources print them; and of older versions.
KNOWN = {
    "E   Failed: Timeout >5.0s\n": "timeout-pytest",
    "Sun Nov 22 04:10:01 2026 - *** HARAKIRI ON WORKER 2 (pid: 812, try: 1) ***\n": "timeout-server-worker",
    "rq.timeouts.JobTimeoutException: Task exceeded maximum timeout value (180 seconds)\n": "timeout-task",
    "Nov 22 04:10:01 host systemd[1]: app.service: Watchdog timeout (limit 30s)!\n": "timeout-service",
    "slurmstepd: error: *** JOB 4711 ON node3 CANCELLED AT 2026-11-22T04:10:01 DUE TO TIME LIMIT ***\n": "timeout-slurm-job",
    "slurmstepd: error: *** STEP 4711.0 ON node3 CANCELLED AT 2026-11-22T04:10:01 DUE TO TIME LIMIT ***\n": "timeout-slurm-job",
}
LOOK_ALIKES = [
    "slurmstepd: error: *** JOB 4711 ON node3 CANCELLED AT 2026-11-22T04:10:01 ***\n",
    "slurmstepd: error: *** JOB 4711 ON node3 CANCELLED AT 2026-11-22T04:10:01 DUE TO PREEMPTION ***\n",
    "asyncio.exceptions.TimeoutError\n",
    "TimeoutError: Timeout >5.0s\n",
    "E       AssertionError: Failed: Timeout\n",
    "WARNING: Executing <Task pending name='Task-1'> took 1.203 seconds\n",
    "requests.exceptions.ReadTimeout: HTTPConnectionPool(host='x', port=80): Read timed out. (read timeout=5)\n",
    "New time limits for tasks of type tasks.hard: soft=1 hard=2\n",
    "Starting LocalTimerServer... max_interval=0.1, daemon=True\n",
    "DataLoader worker (pid 33) is still alive\n",
    "INFO:     Waiting for child process [3883]\n",
    "gunicorn: worker timeout is 30\n",
]


def _findings(subject: Crash) -> list[Finding]:
    return list(diagnose(subject, load_catalog()).findings)


def _of_log(path: Path) -> list[Finding]:
    try:
        return _findings(crash_of_log(path, read_log(path)))
    except EvidenceError:
        return []


@pytest.mark.parametrize("name", RECORDED)
def test_recorded(name: str) -> None:
    first = _of_log(LOGS / f"{name}.log")[0]
    assert (first.confidence, first.id) == RECORDED[name]


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_time_limit(name: str) -> None:
    found = [finding.id for finding in _of_log(LOGS / f"{name}.log")]
    assert found[:1] == ([OTHERS[name]] if OTHERS[name] else [])
    assert not [identity for identity in found if identity.startswith("timeout-")]


def test_every_log_counts() -> None:
    assert {path.stem for path in LOGS.glob("*.log")} == {*RECORDED, *OTHERS}


@pytest.mark.parametrize("text", KNOWN)
def test_known(text: str, tmp_path: Path) -> None:
    (tmp_path / "stderr.log").write_text(text)
    assert [finding.id for finding in _of_log(tmp_path / "stderr.log")] == [KNOWN[text]]


@pytest.mark.parametrize("text", LOOK_ALIKES)
def test_look_alike(text: str, tmp_path: Path) -> None:
    (tmp_path / "stderr.log").write_text(text)
    assert not [finding.id for finding in _of_log(tmp_path / "stderr.log") if finding.id.startswith("timeout-")]


@pytest.mark.parametrize("name", RECORDED)
def test_a_crash_is_not_explained_by_a_time_limit_in_its_log(name: str, tmp_path: Path) -> None:
    told = lines((LOGS / f"{name}.log").read_text(), tmp_path)
    found = _findings(crash(signal="SIGSEGV", reason="null-pointer", address=8, frames="own > py /srv/app.py:3 work", log=told))
    claimed = {identity for _, identity in RECORDED.values()}
    assert not [finding.id for finding in found if finding.id in claimed and finding.confidence != "possible"]
    assert found[0].id not in claimed


@pytest.mark.parametrize(("signal", "told"), [("SIGKILL", [("likely", "timeout-uvicorn-worker")]), ("SIGABRT", [])])
def test_how_the_worker_ended_tells_what_uvicorn_does_not(signal: str, told: list[tuple[str, str]], tmp_path: Path) -> None:
    said = lines((LOGS / "uvicorn-unresponsive.log").read_text(), tmp_path)
    found = _findings(crash(signal=signal, log=said))
    assert [(finding.confidence, finding.id) for finding in found if finding.id.startswith("timeout-")] == told


@pytest.mark.parametrize(
    ("name", "place"), [("gunicorn-timeout", "app.py:15"), ("celery-soft", "tasks.py:22"), ("dataloader", "loader.py:19")]
)
def test_the_summary_says_where_it_stood(name: str, place: str) -> None:
    assert place in (_of_log(LOGS / f"{name}.log")[0].summary or "")


def test_a_server_that_stops_its_other_workers_tells_nothing_of_the_one_that_hung(tmp_path: Path) -> None:
    """gunicorn's last line is of its own end."""
    log = tmp_path / "gunicorn.log"
    log.write_text(
        (LOGS / "gunicorn-timeout.log").read_text() + "[2026-11-27 19:00:22 +0000] [14132] [INFO] Worker (pid:14223) was sent SIGTERM!\n"
    )
    crash = analyze(log)
    assert crash.findings[0].id == "timeout-server-worker" and (crash.signal is None or crash.signal.name != "SIGTERM")


def test_the_line_of_the_supervisor_is_not_where_the_task_stood() -> None:
    """The traceback of Celery's hard limit is that of its main process."""
    (finding,) = _of_log(LOGS / "celery-hard.log")
    assert finding.id == "timeout-task" and "It was at" not in (finding.summary or "")


def test_the_stacks_that_pytest_timeout_prints() -> None:
    """Of each thread but its own, innermost frame first; nothing but frames is in them."""
    evidence = read_log(LOGS / "pytest-thread.log")
    told = {thread.name: [(frame.function, frame.file, frame.line) for frame in thread.pythons()] for thread in evidence.threads}
    assert told["fetcher"] == [
        ("fetch", "/srv/app/test_slow.py", 10),
        ("run", "/opt/python/lib/python3.11/threading.py", 982),
        ("_bootstrap_inner", "/opt/python/lib/python3.11/threading.py", 1045),
        ("_bootstrap", "/opt/python/lib/python3.11/threading.py", 1002),
    ]
    assert told["MainThread"][:2] == [("fetch", "/srv/app/test_slow.py", 10), ("test_hangs", "/srv/app/test_slow.py", 20)]
    assert told["MainThread"][-1] == ("_run_module_as_main", "<frozen runpy>", 198)
    assert [frame.source for thread in evidence.threads for frame in thread.pythons()][:1] == ["time.sleep(600)"]
