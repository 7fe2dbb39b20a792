"""What each endpoint of a job is asked, and which rows are meant for it: the job's own words, compiled."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from rowmill.core.requests.batch_lines import BatchBodies
from rowmill.core.requests.column_names import check_names
from rowmill.core.requests.expressions import compile_expression, is_template, texts_of
from rowmill.core.requests.prompts import Columns, compile_prompt, uses_index
from rowmill.core.requests.routing import Route, Router, RowRouter
from rowmill.core.requests.row_params import RowParams, compile_row_params
from rowmill.core.rows.chunks import with_index
from rowmill.errors import JobError
from rowmill.job import EndpointSpec, Job
from rowmill.job.model import effective_params
from rowmill.job.python_model import python_function
from rowmill.ports import RequestBuilder
from rowmill.providers.presets import load_presets
from rowmill.records import Message, Request, Row

_LONGEST_PATH = 1000
_SINGLE_BRACES = re.compile(r"(?<!\{)\{ *([A-Za-z_]\w*) *\}(?!\})")


@dataclass(frozen=True, slots=True)
class EndpointPrompt:
    """One endpoint's prompt and parameters; `row_params` where parameters or model depend on the row, `uses_index`
    where anything of what is sent depends on its index.
    """

    prompt: RequestBuilder
    params: Mapping[str, object]
    row_params: RowParams | None = None
    parse: Callable[[str], object] | None = None
    uses_index: bool = False

    @property
    def columns(self) -> Columns | None:
        """The columns that what is sent depends on, None where it may be any."""
        return _all(self.prompt.columns, frozenset() if self.row_params is None else self.row_params.columns)

    def request(self, row: Row) -> Request:
        """What is sent for a row.  Raises TemplateFault."""
        params, model = (self.params, None) if self.row_params is None else self.row_params.of(row)
        return self.prompt.request(row, params).replaced(model=model)


@dataclass(frozen=True)
class EndpointPrompts:
    """All endpoints' prompts, in order, and what says which endpoint a row is for."""

    each: Sequence[EndpointPrompt]
    router: RowRouter
    when_columns: Mapping[int, Columns | None]

    @cached_property
    def names(self) -> Sequence[str] | None:
        """The columns that decide what is sent, sorted; None where any may."""
        return _sorted(_all(*(asked.columns for asked in self.each)))

    @cached_property
    def key_names(self) -> Sequence[str] | None:
        """What a row is known by: all that decides what is sent for it (see `row_keys`)."""
        return with_index(self.names) if any(asked.uses_index for asked in self.each) else self.names

    @cached_property
    def value_names(self) -> Sequence[str] | None:
        """The columns that are needed to send a row and to say which endpoint it is for."""
        return _sorted(_all(*(asked.columns for asked in self.each), *self.when_columns.values()))

    def check(self, columns: Sequence[str]) -> None:
        """Raises JobError for a column that the input does not have."""
        faults: list[str] = []
        for asked in self.each:
            gather(faults, partial(asked.prompt.check_columns, columns))
            if asked.row_params is not None:
                gather(faults, partial(check_names, asked.row_params.columns or (), columns, "a parameter"))
        for index, used in self.when_columns.items():
            gather(faults, partial(check_names, used or (), columns, f"endpoints[{index}].when"))
        if faults:
            raise JobError(*dict.fromkeys(faults))


def compile_endpoint_prompts(job: Job) -> EndpointPrompts:
    """Compiles what the job asks of each endpoint; raises JobError with all that is wrong."""
    faults: list[str] = []
    endpoint_prompts: list[EndpointPrompt] = []
    routes: list[Route] = []
    when_columns: dict[int, Columns | None] = {}
    shared: dict[object, RequestBuilder] = {}
    for index, endpoint in enumerate(job.endpoints):
        messages = job.messages_of(endpoint)
        if messages not in shared:
            prompt = BatchBodies() if job.is_batch else gather(faults, partial(compile_prompt, messages))
            if prompt is not None:
                shared[messages] = prompt
        made = gather(faults, partial(_compiled_params, job, endpoint))
        when = None
        if endpoint.when is not None:
            when, when_columns[index] = compile_expression(endpoint.when, f"endpoints[{index}].when")
        routes.append(Route(endpoint.take, when))
        if messages in shared and made is not None:
            params, row_params, parse = made
            asked = EndpointPrompt(shared[messages], params, row_params, parse, _uses_index(job, endpoint))
            endpoint_prompts.append(asked)
            if not (job.is_batch or job.static_prompt) and _is_static(asked):
                faults.append(_static_words(messages))
    if faults:
        raise JobError(*dict.fromkeys(faults))
    return EndpointPrompts(endpoint_prompts, Router(routes), when_columns)


def _is_static(asked: EndpointPrompt) -> bool:
    """Whether every row would be asked the same."""
    return asked.columns == frozenset() and not asked.uses_index


def _uses_index(job: Job, endpoint: EndpointSpec) -> bool:
    texts = [message.content for message in job.messages_of(endpoint)]
    texts += filter(is_template, texts_of([effective_params(job, endpoint), endpoint.model]))
    return any(map(uses_index, texts))


def _static_words(messages: Sequence[Message]) -> str:
    text = next((message.content for message in reversed(messages) if message.role == "user"), "")
    hints = []
    if "\n" not in text and len(text) < _LONGEST_PATH and os.path.isfile(text):
        hints.append(f"-p @{text}, for what stands in that file")
    hints += [f"{{{{ {name} }}}}" for name in _SINGLE_BRACES.findall(text[:_LONGEST_PATH])[:1]] or ["{{ text }}"]
    return (
        f"the prompt uses no column, so every row would be asked the same; did you mean {' or '.join(hints)}? "
        "--static-prompt (in a job file static_prompt: true) for who means it"
    )


def _compiled_params(
    job: Job, endpoint: EndpointSpec
) -> tuple[Mapping[str, object], RowParams | None, Callable[[str], object] | None]:
    params = effective_params(job, endpoint)
    head, _, name = endpoint.model.partition("/")
    model = name if head in load_presets() else endpoint.model
    parse = None if endpoint.parse is None else python_function(endpoint.parse)
    return params, compile_row_params(params, model), parse


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
