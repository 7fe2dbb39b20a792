"""What the engine asks of the edges, as Protocols.  An edge implements one and sees nothing above."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from rowmill.events import Event
from rowmill.records import Attempt, Failure, Fault, Outcome, RawReply, Reply, Request, Row

T = TypeVar("T")


class Clock(Protocol):
    """Time and chance, passed in so that tests own them."""

    def now(self) -> float:
        """Seconds on the running loop's clock."""

    def wall(self) -> float:
        """Unix time."""

    def random(self) -> float:
        """Uniform in [0, 1)."""


class Aside(Protocol):
    """Has work done in another thread, one piece at a time; what it raises is raised where it is awaited."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...


class Chunk(Protocol):
    """About 1,000 consecutive rows of input with exact types; immutable.  See `chunks` for the three kinds."""

    @property
    def indices(self) -> Sequence[int]:
        """0-based index in the input of each row, rising."""

    @property
    def columns(self) -> Sequence[str]:
        """Column names in order of first appearance in this chunk."""

    @property
    def faults(self) -> Mapping[int, Fault]:
        """Offset in the chunk -> why that line is not a row (its record is empty)."""

    def __len__(self) -> int: ...

    def values(self, names: Sequence[str] | None) -> Iterator[Mapping[str, Any]]:
        """One mapping a row with the named columns (None: all) that the row has."""

    def records(self) -> Iterator[dict[str, Any]]:
        """One whole row of input at a time, as plain Python values."""

    def take(self, offsets: Sequence[int]) -> Chunk:
        """The rows at these offsets, as a chunk that keeps their indices."""

    def encode(self) -> tuple[str, bytes]:
        """(layout, bytes) from which `chunks.decode` makes an equal chunk; equal input gives equal bytes."""


class Source(Protocol):
    """Where rows come from.

    `chunks()` reads from the start, in order, in bounded memory, and never raises for a bad line: that line
    becomes a fault.  It raises SourceError when the input cannot be opened or breaks off.
    """

    @property
    def name(self) -> str:
        """What the user calls it: path, glob, '-'."""

    @property
    def rereadable(self) -> bool:
        """Whether `chunks()` may be called again (False for standard input)."""

    def columns(self) -> Sequence[str] | None:
        """Names known without reading rows, None where the format does not tell."""

    def chunks(self) -> Iterator[Chunk]: ...

    def size_hint(self) -> int | None:
        """Number of rows where the format tells without reading all (Parquet), else None."""


class Transport(Protocol):
    """HTTP: request bytes in, status, headers and body out.  Holds connections; closed by its owner."""

    def send(
        self, url: str, headers: Mapping[str, str], body: bytes, timeout_s: float
    ) -> Coroutine[Any, Any, RawReply | Failure]:
        """POST `body`.  `timeout_s` covers connecting, sending and the whole reply.

        Never raises for anything the network does: UNREACHABLE (nothing was sent), RESET, TIMEOUT, TLS and
        UNREADABLE (body cut short) come back as Failures without secrets in them.
        """

    async def close(self) -> None: ...


class Provider(Protocol):
    """Speaks one API's dialect over a transport, or calls a function."""

    def send(self, request: Request, timeout_s: float) -> Coroutine[Any, Any, RawReply | Failure]:
        """Sends one request.  Any HTTP status is a RawReply; only the network's faults are Failures."""

    def read(self, raw: RawReply) -> Reply | Failure:
        """Reads a raw reply; pure, so stored replies can be read again."""

    def reload_credentials(self) -> bool:
        """Reads the key again; true when it has changed.  Raises JobError where it is gone."""

    async def close(self) -> None: ...


class RequestBuilder(Protocol):
    """Makes a row's request: of templates, of a batch file's body, or of the row itself."""

    @property
    def columns(self) -> frozenset[str] | None:
        """The columns that what is sent depends on, None where it may be any."""

    def check_columns(self, columns: Iterable[str]) -> None:
        """Raises JobError where a column that is needed is not among these."""

    def request(self, row: Row, params: Mapping[str, object]) -> Request:
        """What is asked about `row`.  Raises TemplateFault."""

    def is_blank(self, row: Row) -> bool:
        """Whether there is nothing to ask about."""


class AnswerReader(Protocol):
    """What makes an answer of a reply's text, and the columns that the answer has."""

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """(name, kind), kind one of string, number, integer, boolean, json."""

    @property
    def json_schema(self) -> Mapping[str, Any]:
        """What servers are sent."""

    @property
    def strict(self) -> bool:
        """Whether the schema meets the rules of strict mode."""

    def read(self, text: str) -> Mapping[str, Any] | str:
        """The answer's columns, or what is wrong with the text."""


class RowFeed(Protocol):
    """Rows waiting for a worker: read ahead from a source, or a list that is there from the start."""

    error: Exception | None

    @property
    def exhausted(self) -> bool:
        """Whether every row has been taken and no more will come."""

    def subscribe(self, listener: Callable[[], None]) -> None:
        """`listener` is called on the loop when rows have come or the end is known."""

    def start(self) -> None:
        """Begins; called on the running loop."""

    def take(self) -> Row | None:
        """The next row, None if none is here now."""

    async def stop(self) -> None:
        """Ends the reading."""


class Store(Protocol):
    """The run file as the engine sees it.  All calls are made on the engine's loop and return at once."""

    def save_attempt(self, attempt: Attempt) -> None:
        """Queues one attempt for the next group commit."""

    def save_outcome(self, outcome: Outcome) -> None:
        """Queues one outcome; committed together with or after the attempts queued before it."""

    def full(self) -> bool:
        """Whether so much is uncommitted that workers must wait for `room()`."""

    async def room(self) -> None:
        """Returns when workers may go on; raises StoreFullError when the disk is full."""


class Sink(Protocol):
    """Writes output rows into one file: a temporary name first, the final name at `commit`."""

    def write(self, batch: Any) -> None:
        """Appends one `outputs.Batch`; batches come in row order."""

    def commit(self) -> None:
        """Makes the output appear whole under its final name, fsynced."""

    def abort(self) -> None:
        """Takes the temporary file away; the final name is as it was."""


class Observer(Protocol):
    """Is told rare events; reads counters by itself.  Must not raise and must not block."""

    def notify(self, event: Event) -> None: ...
