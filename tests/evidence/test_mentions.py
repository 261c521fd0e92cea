"""No text with the words of a crash is refused, however they are written; nothing is concluded from them."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from time import process_time

import pytest

from crashkit.diagnose import diagnose, load_catalog
from crashkit.errors import EvidenceError
from crashkit.evidence.input import open_input
from crashkit.evidence.text import mentions
from crashkit.evidence.text.letters import LONG, one_wrong
from crashkit.evidence.text.log import crash_of_log, read_crashes, read_log, read_log_input
from crashkit.pipeline import analyze
from tests.test_analyze import status_of

WORDS = mentions.words()
OF_LANGUAGES = [word for several in WORDS.languages.values() for word in several]
EVERY = [*WORDS.beginnings, *WORDS.whole, *OF_LANGUAGES]


def found(text: str) -> dict[int, str]:
    return mentions.mentioned(io.BytesIO(text.encode()))


def written(word: str) -> Iterator[str]:
    """The word as people, shells and editors write it."""
    yield from (word, word.upper(), word.title(), word.swapcase())
    yield from (
        f"\u201c{word}\u201d",
        f"**{word}**",
        f"`{word}`!",
        f"[{word}]",
        f"error:{word}.",
        f"<b>{word}</b>",
        f"\x1b[31m{word}\x1b[0m",
    )
    if " " in word:
        yield from (word.replace(" ", between) for between in ("\n", "-", "_", "  ", " \r\n> ", "\u00a0", "...", ""))
    middle = len(word) // 2
    if len(word) >= LONG and word.isalpha():
        yield from (f"{word[:middle]}-\n{word[middle:]}", f"{word[:middle]}\n{word[middle:]}")


def misspelt(word: str) -> Iterator[str]:
    """The word with one letter wrong."""
    for at in range(1, len(word) - 1):
        if " " not in word[at - 1 : at + 2]:
            yield from (word[:at] + word[at + 1 :], word[:at] + "q" + word[at:], word[:at] + "q" + word[at + 1 :])
            yield word[:at] + word[at + 1] + word[at] + word[at + 2 :]


# One test for all words: a test of its own for each of a thousand takes longer than what it tests.
def test_a_word_however_it_is_written() -> None:
    assert len(EVERY) > 700
    assert [text for word in EVERY for text in written(word) if 1 not in found(f"{text}\nand then nothing")] == []


def test_a_word_with_one_letter_wrong() -> None:
    words = [word for word in WORDS.beginnings if len(word.replace(" ", "")) >= LONG]
    assert len(words) > 200
    assert [text for word in words for text in misspelt(word) if not found(f"a {text} here")] == []


@pytest.mark.parametrize(
    "text",
    [
        *(
            f"{how} {number}"
            for how in ("exit code", "Exited with status", "returncode:", "exit status is", "code =")
            for number in (134, 139)
        ),
        *(f"the exit code was {number}" for number in range(131, 160)),
        *(f"returned {number}" for number in range(-11, -3)),
        "returned \u221211",
        "139 as the exit code",
        *(f"signal {number}" for number in range(3, 13)),
        "Signal #11",
        "signal (6)",
        "signal number 7",
        "SIG 11",
        *(f"died of {name}" for name in ("SIGSEGV", "sigabrt", "SIG_BUS", "Sig-Ill", "SIGFPE", "SIGTRAP", "SIGKILL", "SIGTERM")),
        *("3221225477", "-1073741819", "1073741819", "0xC0000005", "c0000374", "C0000005h", "0XC000001D", "-1073740791", "3221226505"),
        *("0x80000003", "0xE06D7363", "3,221,225,477", "STATUS_ACCESS_VIOLATION", "code=C0000409"),
        "the program terminated quite unexpectedly",
        "it closes without any error message",
        "it just quits without a warning",
        "the backend did suddenly exit",
        "after an hour the worker process dies",
        "Der Kernel st\u00fcrzt immer wieder ab",
        "it dumps the core",
        "The bot goes offline randomly with no logs",
        "script just stops, no traceback",
        "nothing happens and it returns to the prompt",
        "CTD when loading",
        "returned to shell without output",
        "the core is dumped",
        "Instruction at 0x00007FF referenced memory at 0x0. The memory could not be read.",
        "python3.9: symbol lookup error",
        "EXC_RESOURCE RESOURCE_TYPE_MEMORY",
        "Linux emulation: exec format error",
        "line\\nSegfault\\nline",
    ],
)
def test_numbers_and_sentences(text: str) -> None:
    assert list(found(f"hello\n{text}\n")) == [2]


@pytest.mark.parametrize(
    "text",
    [
        "Buy milk.",
        "exited normally",
        "exit code 0, exit code 1, exit status 2, returned 100, returned -1, code 130",
        "signal 1, signal 2, signals: 100; the signal was good",
        "GET /a HTTP/1.1 200 139 -",
        "semantic segmentation of images with a default of 139 classes",
        "I wonder why line 139 of load calls json.dump(x): bad value 11",
        "color #c0000; id c00000; sha 0c0000051",
        "the labor ted did; scrash; the clashes of crushed stone; trashed",
        "How can I plot a histogram?",
        "Starting server\nListening on :80\nGET / 200\nShutting down\nServer stopped",
        "Reloading 3 workers; worker 2 ready, worker 3 ready",
        "epoch 1: 100% 12 minutes left\nepoch 2: 100%\ntraining finished",
        "epoch 3: loss 0.134, 139 it/s",
        "",
    ],
)
def test_a_text_without_such_a_word_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(text)
    assert found(text) == {}
    with pytest.raises(EvidenceError):
        read_log(tmp_path / "a.txt")


@pytest.mark.parametrize(
    "text", ["Fixes a crash", "v1.2: no more segmentation faults", "0 crashes, 12 workers", "段错误怎么办", "it may be a segfault"]
)
def test_nothing_is_claimed(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text(f"hello\n{text}\n")
    crash = crash_of_log(path, read_log(path))
    told = diagnose(crash, load_catalog())
    assert (told.findings, told.looked_for, told.signal) == ((), (), None) or text == "段错误怎么办"
    assert told.next_steps


def test_the_report_quotes_the_line_and_says_what_next(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mail.txt"
    path.write_text("Hello,\n\nsince the update it may be a Segmen-\ntation fault.\n")
    status, out, _ = status_of(capfd, "analyze", path)
    assert status == 0
    assert "Crash mentioned" in out and "it may be a Segmen-" in out
    assert "the text mentions a crash (line 3), but contains nothing that a crash leaves behind" in out
    assert "PYTHONFAULTHANDLER=1" in out and "coredumpctl" in out


def test_what_is_known_counts_more(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("fixes a crash\nSegmentation fault (core dumped)\n")
    assert [line.kind for line in analyze(tmp_path / "a.txt").log] == ["process-end"]


def test_only_of_a_text_that_somebody_picked(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("fixes a crash\n")
    with open_input(tmp_path / "a.txt") as source:
        assert read_crashes(source) == ()
        with pytest.raises(EvidenceError):
            read_log_input(source)


def test_not_of_a_log_that_a_run_left(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "build.log").write_text("0 crashes so far\nno segfault\n")
    status, out, _ = status_of(capfd, "ci", tmp_path, "--out", tmp_path / "out")
    assert status == 0 and "No crashes in 1 file" in out


@pytest.mark.slow
def test_both_ends_of_a_long_text(tmp_path: Path) -> None:
    filler = "an ordinary line of thirty-two bytes\n" * ((mentions.HEAD + mentions.TAIL) // 36)
    assert found(filler + "it crashed\n" + filler) == {}
    last = filler.count("\n") + 1
    assert found("it crashed\n" + filler + "it crashed\n") == {1: "it crashed", last + 1: "it crashed"}


def test_one_wrong() -> None:
    assert [one_wrong("segfault", text) for text in ("segfault", "segfalut", "segfult", "segfaault", "sagfault")] == [True] * 5
    assert [one_wrong("segfault", text) for text in ("segflat", "sagfeult", "segfaultxx", "fault", "")] == [False] * 5


@pytest.mark.slow
def test_hostile_text_takes_little_time() -> None:
    for piece in ("segmenta segment viol access ", "segm", "a" * 40 + " ", "x\n", "segmentatio\n", "co re du mp e "):
        began = process_time()
        found(piece * ((mentions.HEAD + mentions.TAIL) // len(piece)))
        assert process_time() - began < 5


DOCKER = '{"log":"a\\nb\\nc\\nit goes offline then\\n"}\n'
MARKED_UP = "a&#10;b&#10;c&#10;it goes offline then\n"


@pytest.mark.parametrize("text", [DOCKER, MARKED_UP, MARKED_UP + "and the kernel restarts\n"])
@pytest.mark.parametrize("count", [1, 2])
def test_a_line_that_holds_several_once_it_is_read(text: str, count: int, tmp_path: Path) -> None:
    """Their number is that of the line in the file."""
    paths = []
    for number in range(count):
        paths.append(tmp_path / f"{number}.txt")
        paths[-1].write_text(text)
    crash = analyze(paths if count > 1 else paths[0])
    assert min(found(text)) == 1
    assert not [error for error in crash.soft_errors if " failed: " in error.message]


FAILED = (
    "undefined symbol: cblas_gemm_batch when importing numpy",
    "the wheel needs a newer glibc than your Ubuntu has",
    "EDAC MC0: 1 UE memory read error",
    "library load disallowed by system policy",
    "BLAS : Bad memory unallocation! : 640",
    "OSError: [Errno 28] No space left on device: '/srv/psm_abc'",
    "RuntimeError: [enforce fail at inline_container.cc:209]",
    "When starting it, I get the error:\nMicrosoft Windows XP [Version 5.1.2600]",
    "The Space fails to start: workload evicted",
    "the invocation dies without giving an insightful reason",
    '  File "/srv/app.py", line 3 in main\n\nExtension modules: numpy.core (total: 1)',
    "After 20 minutes the bot goes silent.",
    "Your notebook tried to allocate more memory",
    "the run has been at step 0 for six hours",
    "Xid 13",
    "INFO waiting for other ranks",
    "nothing happens after this line",
    "It stays at 0% and never proceeds.",
    "it just sits there",
    "A window flashes and is gone.",
    "after a while the pid is gone from ps",
    "The process ended.",
    "After both are connected, the simulator shuts down.",
    "5 minutes after it is opened it is closing itself",
    "Startup-loop of the workers",
    "The pod gets recreated every ten minutes.",
    "GPU at 0 % and no progress",
    "the application froze",
    "INFO: task python:123 blocked for more than 120 seconds.",
    "The runner lost communication with the server",
    "Missed heartbeat from celery@host",
    "http.client.RemoteDisconnected: Remote end closed",
    "502 Bad Gateway",
    "VK_ERROR_DEVICE_LOST",
    "Location: python311.dllPyList_AsTuple + 46D bytes\nModule: C:\\python311.dll",
    "python(PyEval_EvalFrameEx+0x11) [0x4b]",
    "#3  0x00007f12 in work ()",
    "Python has encountered a problem",
    "my node keeps beeping",
    "Sometimes, when it reads the camera, everything stops.",
    "Training begins an epoch, and then it stops.",
    "Steps to reproduce: 1. open it, 2. wait",
    "Any idea what it is?",
    "the whole machine locks up",
    "nothing is written to the log",
    "Once the client is connected, the simulator shuts down",
    "ten minutes later the program is closing itself",
    "the editor just went away",
    "the console window flashes up and is gone",
    "training does not proceed past the first step",
    "0% for hours",
    "the bot goes down every night",
    "it makes my Pi lock up",
    "the master keeps respawning workers",
    "we get a startup loop",
    "it waits forever at the barrier",
    "importing it never comes back",
    "it takes down the whole interpreter",
    "show() turns the window white, and then it goes blank",
    "the session ended for an unknown reason",
    "no response, I had to kill -9 it",
    "jobs vanish from the queue",
    "OMP: Warning #191: Forking a process while a parallel region is active is potentially unsafe.",
    "it finishes early with nothing written",
    "child processes become zombies",
    "nvidia-smi shows no devices after some hours",
    "Location: python311.dllPyList_AsTuple + 46D bytes",
)


@pytest.mark.parametrize("text", FAILED)
def test_a_short_text_that_tells_of_a_failure(text: str, tmp_path: Path) -> None:
    """It is said that it tells of no crash; a long one, such as a log, is refused as before."""
    path = tmp_path / "posted.txt"
    path.write_text(f"Hello\n{text}\n")
    crash = analyze(path)
    assert crash.findings == () and crash.signal is None
    path.write_text(f"{text}\n" + "an ordinary line\n" * (mentions.MOST_POSTED // 10))
    with pytest.raises(EvidenceError):
        read_log(path)


TITLES = (
    "le programme s'arrête brutalement sans message",
    "Le script se termine sans erreur au milieu de la boucle",
    "Le processus est tué par le système",
    "Le noyau Jupyter redémarre à chaque exécution",
    "Skript bleibt hängen",
    "Der Container startet ständig neu",
    "Se mata el proceso por falta de memoria",
    "El servidor se reinicia constantemente",
    "o processo é finalizado pelo sistema",
    "O kernel morre quando rodo a célula",
    "o programa para sozinho",
    "Il programma termina improvvisamente",
    "Het programma stopt plotseling",
    "program kończy się nagle bez błędu",
    "программа внезапно завершает работу",
    "server会core dump",
    "多卡训练时hang住",
    "跑着跑着就killed了",
    "进程一直卡着不动",
    "容器不断重启",
    "işlem öldürülüyor",
    "tiến trình bị kill",
    "proses mati sendiri",
    "البرنامج يتوقف فجأة",
    "البرنامج يتعطل عند التشغيل",
    "התהליך נהרג",
    "gunicorn stops serving requests after a while",
    "uwsgi respawns its workers all the time",
    "the scheduler stops heartbeating",
    "Dyno down",
    "The app goes to sleep and never wakes up",
    "Job deleted at request of root",
)
"""Titles that say no more than that something ended, was ended or hangs, in the languages of those who post them."""


@pytest.mark.parametrize("text", TITLES)
def test_a_title_is_no_healthy_log(text: str, tmp_path: Path) -> None:
    path = tmp_path / "posted.txt"
    path.write_text(text + "\n")
    assert analyze(path).findings == ()


WELL = (
    "Der Server startet auf Port 8000",
    "Le serveur s'arrête proprement",
    "El programa termina con éxito",
    "Il programma termina con 0 errori",
    "Program kończy pracę",
    "服务已启动，端口 8000",
    "Сервер запущен на порту 8000",
    "[9] [INFO] Booting worker with pid: 9\n[9] [INFO] Worker exiting (pid: 9)\n[1] [INFO] Shutting down: Master",
    "INFO: Started server process [123]\nINFO: Shutting down\nINFO: Waiting for application shutdown.\nINFO: Finished server process [123]",
    "db_1 | received fast shutdown request\ndb_1 | database system is shut down\napp_db_1 exited with code 0",
    "[celery@host ready.]\nTask app.add[1] succeeded in 0.01s: 3\nTask exited with return code 0",
    "Early stopping after 3 epochs without improvement\nSaved checkpoint\nTraining finished in 0:03:22",
    "[node-1] process has finished cleanly",
    "Sometimes you want to plot two lines; every time you call it, a new one is drawn.",
    "To reproduce the figures of the paper, run make all.",
    "INFO stopped: celery (exit status 0)\nINFO success: celery entered RUNNING state, process has stayed up for > than 1 seconds",
    "[I NotebookApp] Kernel started: 123, name: python3\n[I NotebookApp] Kernel shutdown: 123",
    "INFO SparkContext: Successfully stopped SparkContext\nINFO ShutdownHookManager: Shutdown hook called",
)


@pytest.mark.parametrize("text", WELL)
def test_a_short_log_in_which_all_is_well_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text(text)
    with pytest.raises(EvidenceError):
        read_log(path)


def test_the_report_says_that_it_is_a_failure(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mail.txt").write_text(f"Hello\n{FAILED[0]}\n")
    status, out, _ = status_of(capfd, "analyze", tmp_path / "mail.txt")
    assert status == 0 and "Failure mentioned" in out and "reports a failure (line 2), but no crash" in out


BEHEADED = """\
  File "/venv/lib/python3.8/site-packages/torch/utils/data/dataloader.py", line 1040, in __init__
    w.start()
  File "/usr/lib/python3.8/multiprocessing/popen_fork.py", line 68, in _launch
    parent_r, child_w = os.pipe()
OSError: [Errno 24] Too many open files
"""


@pytest.mark.parametrize("before", ["", "It fails like this:\n\n", "OS error 24\n" * 9])
def test_a_traceback_without_its_first_line(before: str, tmp_path: Path) -> None:
    path = tmp_path / "posted.txt"
    path.write_text(before + BEHEADED)
    crash = analyze(path)
    assert [frame.function for frame in crash.threads[0].frames] == ["_launch", "__init__"]
    assert [finding.id for finding in crash.findings] == ["dataloader-too-many-open-files"]
