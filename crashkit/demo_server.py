"""The server that `crashkit demo` crashes: thumbnails over HTTP, one thread per request, 127.0.0.1 only.

Run as a program, it prints its port. `/thumbnail/NAME` scales an image, `POST /upload` reads one; both keep their threads busy.
`/thumbnail/broken` waits until five other requests are being served and then follows the null pointer of an image without
pixels into native code.
"""

from __future__ import annotations

import ctypes
import http.server
import threading
from functools import partial
from typing import Optional

OTHERS = 5
"""Requests that must be in progress before the broken image is read."""


class Image:
    """Pixels in native memory, as an imaging library's C structure holds them."""

    def __init__(self, name: str, width: int, height: int) -> None:
        self.name = name
        self.width = width
        self.height = height
        self.buffer = None if name == "broken" else ctypes.create_string_buffer(width * height)

    @property
    def pixels(self) -> Optional[int]:
        """Address of the first pixel; None for a broken image."""
        return ctypes.addressof(self.buffer) if self.buffer is not None else None

    def row(self, number: int) -> bytes:
        """One row of pixels, one byte each; crashes for a broken image."""
        start = (self.pixels or 0) + number * self.width
        return ctypes.string_at(start, self.width)


def brightness(image: Image, number: int) -> float:
    """Mean pixel value of one row."""
    return sum(image.row(number)) / image.width


def scale(image: Image, factor: int) -> list[float]:
    """Brightness of every `factor`-th row, rounded to one decimal."""
    rows = range(factor, image.height, factor)
    return [round(value, 1) for value in map(partial(brightness, image), rows)]


def thumbnail(name: str) -> list[float]:
    """Make an image of 64 x 64 pixels and scale it down by 8."""
    image = Image(name, width=64, height=64)
    return scale(image, factor=8)


class Gate:
    """Opens when enough requests are being served."""

    def __init__(self, wanted: int) -> None:
        self.changed = threading.Condition()
        self.missing = wanted

    def enter(self) -> None:
        """Count one more request."""
        with self.changed:
            self.missing -= 1
            self.changed.notify_all()

    def wait(self) -> None:
        """Block until enough requests have entered."""
        with self.changed:
            self.changed.wait_for(lambda: self.missing <= 0)


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves the paths in the module's docstring."""

    busy = Gate(OTHERS)

    def do_GET(self) -> None:
        """Scale an image, forever unless it is the broken one."""
        name = self.path.rsplit("/", 1)[-1]
        threading.current_thread().name = f"GET {self.path}"
        if name == "broken":
            self.busy.wait()
            self.reply(thumbnail(name))
        self.busy.enter()
        while True:  # a popular image
            thumbnail(name)

    def do_POST(self) -> None:
        """Read the announced body and reply with its length in bytes."""
        threading.current_thread().name = f"POST {self.path}"
        self.busy.enter()
        length = int(self.headers["Content-Length"])
        self.reply([len(self.rfile.read(length))])

    def reply(self, values: list[float]) -> None:
        """Send the values as text with status 200."""
        self.send_response(200)
        self.end_headers()
        self.wfile.write(repr(values).encode())

    def log_message(self, format: str, *args: object) -> None:
        """No access log: the demo's output is the report."""


def main() -> None:
    """Serve on a free port and print its number."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
