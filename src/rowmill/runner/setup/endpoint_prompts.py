"""What each endpoint of a job is asked, and which rows are meant for it: the job's own words, compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from rowmill.core.requests.batch_lines import BatchBodies
from rowmill.core.requests.expressions import compile_expression
from rowmill.core.requests.prompts import Columns, check_names, compile_prompt
from rowmill.core.requests.routing import Route, Router
from rowmill.core.requests.row_params import Address, compile_address
from rowmill.errors import JobError
from rowmill.job import EndpointSpec, Job
from rowmill.job.model import effective_params
from rowmill.job.python_model import python_function
from rowmill.ports import RequestBuilder
from rowmill.providers.presets import load_presets
from rowmill.records import Request, Row


@dataclass(frozen=True, slots=True)
class Ask:
    """One endpoint's prompt and parameters; `address` where parameters or model depend on the row."""

    prompt: RequestBuilder
    params: Mapping[str, object]
    address: Address | None = None
    parse: Callable[[str], object] | None = None

    @property
    def columns(self) -> Columns | None:
        """The columns that what is sent depends on, None where it may be any."""
        return _all(self.prompt.columns, frozenset() if self.address is None else self.address.columns)

    def request(self, row: Row) -> Request:
        """What is sent for a row.  Raises TemplateFault."""
        params, model = (self.params, None) if self.address is None else self.address.of(row)
        return self.prompt.request(row, params).replaced(model=model)


@dataclass(frozen=True)
class Asks:
    """All endpoints' asks, in order, and the way of a row to one of them."""

    each: Sequence[Ask]
    router: Router
    when_columns: Mapping[int, Columns | None]

    @cached_property
    def key_names(self) -> Sequence[str] | None:
        """The columns that decide what is sent, sorted; None where any may."""
        return _sorted(_all(*(ask.columns for ask in self.each)))

    @cached_property
    def value_names(self) -> Sequence[str] | None:
        """The columns that are needed to send a row and to find its way."""
        return _sorted(_all(*(ask.columns for ask in self.each), *self.when_columns.values()))

    def check(self, columns: Sequence[str]) -> None:
        """Raises JobError for a column that the input does not have."""
        faults: list[str] = []
        for ask in self.each:
            gather(faults, partial(ask.prompt.check_columns, columns))
            if ask.address is not None:
                gather(faults, partial(check_names, ask.address.columns or (), columns, "a parameter"))
        for place, used in self.when_columns.items():
            gather(faults, partial(check_names, used or (), columns, f"endpoints[{place}].when"))
        if faults:
            raise JobError(*dict.fromkeys(faults))


def compile_asks(job: Job) -> Asks:
    """Compiles what the job asks of each endpoint; raises JobError with all that is wrong."""
    faults: list[str] = []
    asks: list[Ask] = []
    routes: list[Route] = []
    when_columns: dict[int, Columns | None] = {}
    shared: dict[object, RequestBuilder] = {}
    for place, endpoint in enumerate(job.endpoints):
        messages = job.messages_of(endpoint)
        if messages not in shared:
            prompt = BatchBodies() if job.is_batch else gather(faults, partial(compile_prompt, messages))
            if prompt is not None:
                shared[messages] = prompt
        made = gather(faults, partial(_addressed, job, endpoint))
        when = None
        if endpoint.when is not None:
            when, when_columns[place] = compile_expression(endpoint.when, f"endpoints[{place}].when")
        routes.append(Route(endpoint.take, when))
        if messages in shared and made is not None:
            asks.append(Ask(shared[messages], *made))
    if faults:
        raise JobError(*dict.fromkeys(faults))
    return Asks(asks, Router(routes), when_columns)


def _addressed(
    job: Job, endpoint: EndpointSpec
) -> tuple[Mapping[str, object], Address | None, Callable[[str], object] | None]:
    params = effective_params(job, endpoint)
    head, _, name = endpoint.model.partition("/")
    model = name if head in load_presets() else endpoint.model
    parse = None if endpoint.parse is None else python_function(endpoint.parse)
    return params, compile_address(params, model), parse


def gather(faults: list[str], work: Callable[[], Any]) -> Any:
    """What `work` gives; where it raises JobError its faults are added, and None comes back."""
    try:
        return work()
    except JobError as error:
        faults.extend(error.faults)
        return None


def _all(*used: Columns | None) -> Columns | None:
    known = [columns for columns in used if columns is not None]
    return frozenset().union(*known) if len(known) == len(used) else None


def _sorted(columns: Columns | None) -> Sequence[str] | None:
    return None if columns is None else sorted(columns)
