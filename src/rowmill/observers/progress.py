"""The live block on a terminal, or a plain line now and then; it only reads figures.

It draws from a thread of its own, so a busy engine and a slow terminal never wait for each other.
"""

from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from rowmill.events import Event, LaneDisabled, Notice, RunEnded, RunStarted
from rowmill.observers.wording import figure_lines, printable, progress_line, rows_words
from rowmill.records import Figures

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.live import Live

LINE_INTERVAL_S = 10.0
REDRAWS_PER_S = 4.0


class Progress:
    """An observer that shows how a run goes; `quiet` leaves only what went wrong."""

    def __init__(self, stream: TextIO | None = None, quiet: bool = False, interval_s: float = LINE_INTERVAL_S) -> None:
        self._stream = stream or sys.stderr or io.StringIO()  # a process may have been started without one
        self._quiet = quiet
        self._interval_s = interval_s
        self._shown: _Block | _Lines | None = None

    def notify(self, event: Event) -> None:
        """Starts and stops with the run; prints notices above the block."""
        match event:
            case RunStarted(figures) if not self._quiet:
                self._shown = self._display(figures)
            case RunEnded():
                if self._shown is not None:
                    self._shown.stop()
                    self._shown = None
            case Notice(text) if not self._quiet:
                self._say(text)
            case LaneDisabled(lane, why):
                self._say(f"{lane} is out for the rest of this run: {why}")
            case _:
                pass

    def _display(self, figures: Callable[[], Figures]) -> _Block | _Lines:
        if is_terminal(self._stream):
            return _Block(self._stream, figures)
        return _Lines(self._stream, figures, self._interval_s)

    def _say(self, text: str) -> None:
        text = printable(text)
        if self._shown is None:
            write_line(self._stream, text)
        else:
            self._shown.say(text)


def is_terminal(stream: TextIO) -> bool:
    """Whether a block can be drawn on `stream`."""
    try:
        return stream.isatty() and os.environ.get("TERM") != "dumb"
    except ValueError:  # closed
        return False


def write_line(stream: TextIO, text: str) -> None:
    """Writes one line; a stream that nobody reads any more is no reason to stop a run."""
    try:
        stream.write(text + "\n")
        stream.flush()
    except (OSError, ValueError):
        pass


class _Lines:
    """One plain line every `interval_s`, from a daemon thread."""

    def __init__(self, stream: TextIO, figures: Callable[[], Figures], interval_s: float) -> None:
        self._stream = stream
        self._figures = figures
        self._interval_s = interval_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name="rowmill-progress", daemon=True)
        self._thread.start()

    def _repeat(self) -> None:
        while not self._ended.wait(self._interval_s):
            write_line(self._stream, progress_line(self._figures()))

    def say(self, text: str) -> None:
        write_line(self._stream, text)

    def stop(self) -> None:
        self._ended.set()
        self._thread.join(timeout=1.0)


class _Block:
    """The live block.  What others print while it stands appears above it."""

    def __init__(self, stream: TextIO, figures: Callable[[], Figures]) -> None:
        self._figures = figures
        self._console = console_on(stream)
        self._live = self._start()

    def _start(self) -> Live:
        from rich.live import Live

        live = Live(
            console=self._console,
            get_renderable=self._draw,
            refresh_per_second=REDRAWS_PER_S,
            transient=True,
            # Standard output that is no terminal cannot wreck the block, and must not end up on stderr.
            redirect_stdout=is_terminal(sys.stdout),
            redirect_stderr=True,
        )
        live.start()
        return live

    def _draw(self) -> Group:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        figures = self._figures()
        head = Table.grid(padding=(0, 1))
        bar = ProgressBar(total=figures.total or None, completed=figures.done, width=40, pulse=figures.total is None)
        head.add_row(bar, Text(rows_words(figures)))
        return Group(head, *(Text(line, no_wrap=True, overflow="ellipsis") for line in figure_lines(figures)))

    def say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False)

    def stop(self) -> None:
        self._live.stop()


def console_on(stream: TextIO) -> Console:
    """A console on `stream`; NO_COLOR is respected."""
    from rich.console import Console

    return Console(file=stream, highlight=False, markup=False, emoji=False)
