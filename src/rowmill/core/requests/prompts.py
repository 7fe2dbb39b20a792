"""Templates and a row -> messages.  Knows nothing of sending.

Templates are Jinja2 in a sandbox.  They see the row's columns by name, `row` (all columns as a mapping, for
odd names: `{{ row["Review Text"] }}`) and `_row` (the row's 0-based index).  A column that is itself called
`row` or `_row` is reached as `row["row"]`.  There are no other names: no globals, no includes.  Data is never
evaluated.
"""

from __future__ import annotations

import base64
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NoReturn, cast

import msgspec
from jinja2 import StrictUndefined, TemplateError, TemplateSyntaxError, UndefinedError, meta, nodes
from jinja2.exceptions import SecurityError

from rowmill.core.requests.column_names import OWN_NAMES, check_names, no_column
from rowmill.core.requests.sandbox import BoundedEnvironment
from rowmill.errors import JobError
from rowmill.records import Message, Request, Row

Columns = frozenset[str]

_JINJA_WORDS = frozenset(
    {"and", "else", "false", "if", "in", "is", "none", "not", "or", "true", "False", "None", "True"}
)
_HOLE = re.compile(r"\{\{-?\s*([^{}|()\[\]'\"]{1,200}?)\s*-?\}\}")
_ROW_METHODS = frozenset(dir(dict))


class TemplateFault(Exception):
    """One row cannot be rendered; the text is for the user."""


class _Null:
    """Stands for null and NaN inside templates: prints as nothing whatever filter it goes through."""

    __slots__ = ()

    def __str__(self) -> str:
        return ""

    def __bool__(self) -> bool:
        return False

    def __len__(self) -> int:
        return 0

    def __iter__(self) -> Iterator[object]:
        return iter(())

    def __eq__(self, other: object) -> bool:
        return other is None or isinstance(other, _Null)

    def __hash__(self) -> int:
        return hash(None)


_NULL = _Null()


def as_text(value: object) -> str:
    """A value as it stands in a prompt: null and NaN are nothing, true is `true`, nested values are JSON."""
    if isinstance(value, str):
        return str(value)
    if value is None or value is _NULL or value != value:
        return ""
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, Mapping | list | tuple | set | frozenset):
        return _json(value)
    if isinstance(value, bytes | bytearray | memoryview):
        raw = bytes(value)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return base64.b64encode(raw).decode()
    if isinstance(value, Decimal):
        return format(value, "f") if -32 < value.adjusted() < 32 else str(value)
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    return str(value)


def _json(value: object) -> str:
    try:
        return msgspec.json.encode(plain(value), enc_hook=as_text).decode()
    except (TypeError, ValueError, RecursionError) as error:
        raise TemplateFault(f"a nested value cannot be written as JSON: {error}") from None


def plain(value: object) -> object:
    """Nested values as msgspec can write them: integers of any size, text keys."""
    if isinstance(value, Mapping):
        return {as_text(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(part) for part in value]
    if value is _NULL:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**64:
        return msgspec.Raw(str(value).encode())
    if isinstance(value, Decimal):
        return msgspec.Raw(str(value).encode()) if value.is_finite() else None
    return value


def or_null(value: object) -> object:
    return _NULL if value is None or value != value else value


class _Environment(BoundedEnvironment):
    """The sandbox with nulls that print as nothing, also where they are nested."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        return or_null(super().getattr(obj, attribute))

    def getitem(self, obj: Any, argument: Any) -> Any:
        return or_null(super().getitem(obj, argument))


@functools.cache
def sandbox() -> _Environment:
    environment = _Environment(
        undefined=StrictUndefined, autoescape=False, keep_trailing_newline=True, finalize=_finalize
    )
    environment.globals.clear()
    environment.filters["tojson"] = lambda value: _json(value)  # Jinja's own escapes < > & ' for HTML
    environment.filters["string"] = as_text
    environment.bound_filters()
    environment.tests["none"] = lambda value: value is None or value is _NULL
    return environment


def _finalize(value: Any) -> Any:
    if isinstance(value, StrictUndefined):
        return value  # printing it raises, with the name
    return as_text(value)


@dataclass(frozen=True, slots=True)
class _Compiled:
    """One template: its message's role, the columns it uses (None: all), how to render it."""

    role: str
    columns: Columns | None
    render: Callable[[Row], str]


@dataclass(frozen=True, slots=True)
class Prompt:
    """Compiled templates; implements `ports.RequestBuilder`; safe to use from several threads.

    `columns` are those that the templates use, None where they may use any.
    """

    templates: tuple[_Compiled, ...]
    columns: Columns | None

    def render(self, row: Row) -> tuple[Message, ...]:
        """The messages for `row`.  Raises TemplateFault."""
        return tuple([Message(template.role, template.render(row)) for template in self.templates])

    def request(self, row: Row, params: Mapping[str, object]) -> Request:
        """What is asked about `row`.  Raises TemplateFault."""
        return Request(self.render(row), params)

    def check_columns(self, columns: Iterable[str]) -> None:
        """Raises JobError for a template that names a column that is not among `columns`."""
        named: set[str] = set().union(*(template.columns or () for template in self.templates))
        check_names(named, tuple(columns), "the prompt")

    def is_blank(self, row: Row) -> bool:
        """Whether every column that the templates use is null or blank (and there is one)."""
        names = row.values.keys() if self.columns is None else self.columns
        return bool(names) and not any(as_text(row.values.get(name)).strip() for name in names)


def compile_prompt(messages: Sequence[Message], columns: Iterable[str] | None = None) -> Prompt:
    """Compiles templates once.  `columns` are those that the input has, where known.

    Raises JobError for templates that are not valid, reach for hidden attributes, or name unknown columns.
    """
    known = None if columns is None else tuple(columns)
    compiled = []
    faults = []
    for message in messages:
        try:
            compiled.append(_compile(message, known))
        except JobError as error:
            faults += [f"{message.role} message: {fault}" for fault in error.faults]
    if faults:
        raise JobError(*faults)
    used: set[str] | None = set()
    for template in compiled:
        used = None if used is None or template.columns is None else used | template.columns
    prompt = Prompt(tuple(compiled), None if used is None else frozenset(used))
    if known is not None:
        prompt.check_columns(known)
    return prompt


def compile_template(text: str) -> _Compiled:
    """Compiles one template by itself.  Raises JobError."""
    return _compile(Message("", text), None)


def check_template(text: str) -> None:
    """Raises JobError for a template that cannot be compiled."""
    checked_tree(text)


def _compile(message: Message, known: Sequence[str] | None) -> _Compiled:
    tree = checked_tree(message.content)
    columns = used_columns(tree)
    parts = _simple_parts(tree)
    if parts is not None:
        texts = ["" if is_column else text for is_column, text in parts]
        holes = [(at, name) for at, (is_column, name) in enumerate(parts) if is_column]
        return _Compiled(message.role, columns, functools.partial(_join, texts, holes, known))
    template = sandbox().from_string(message.content)
    return _Compiled(message.role, columns, functools.partial(_render, template, known))


def _join(texts: list[str], holes: Sequence[tuple[int, str]], known: Sequence[str] | None, row: Row) -> str:
    """Renders a template that is only text and columns, ten times faster than Jinja would.

    `holes` are indices of `texts` and the columns that go there.
    """
    values = row.values
    filled = texts.copy()
    try:
        for at, name in holes:
            value = values[name]
            filled[at] = value if type(value) is str else as_text(value)
    except KeyError as error:
        missing = str(error.args[0])
        raise TemplateFault(no_column(missing, known or tuple(values), "the prompt", "the row")) from None
    return "".join(filled)


def _render(template: Any, known: Sequence[str] | None, row: Row) -> str:
    values = {name: or_null(value) for name, value in row.values.items()}
    try:
        return cast("str", template.render({**values, "row": values, "_row": row.index}))
    except TemplateFault:
        raise
    except Exception as error:
        blame(error, known or tuple(values))


def blame(error: Exception, known: Sequence[str]) -> NoReturn:
    """Raises the TemplateFault for whatever a user's template raised."""
    if isinstance(error, UndefinedError):
        named = re.match(r"'([^']*)' is undefined|'dict object' has no attribute '(.*)'", str(error))
        if named:
            name = named[1] or named[2]
            raise TemplateFault(no_column(name, known, "the prompt", "the row")) from None
    if isinstance(error, SecurityError):
        raise TemplateFault(f"the template reaches for what is hidden: {error}") from None
    words = str(error) or type(error).__name__
    raise TemplateFault(f"the template cannot be rendered: {words}{advice(error)}") from None


def advice(error: Exception) -> str:
    if isinstance(error, TypeError) and "'str'" in str(error):
        return " (cells of a CSV file are text: write `score | float`)"
    return ""


def checked_tree(text: str) -> nodes.Template:
    environment = sandbox()
    try:
        tree = environment.parse(text)
        environment.compile(text)
    except TemplateSyntaxError as error:
        line = f"line {error.lineno} of the template: " if text.count("\n") else ""
        raise JobError(f"{line}{error.message}{_syntax_advice(text)}") from None
    except TemplateError as error:
        raise JobError(str(error)) from None
    except (RecursionError, ValueError, OverflowError, SyntaxError):
        raise JobError("the template is nested too deeply or holds a number too large") from None
    _refuse_hidden(tree)
    return tree


def _syntax_advice(text: str) -> str:
    if "{#" in text:
        return " ({# begins a comment; write {{ '{#' }} for the two characters)"
    for name in _HOLE.findall(text):
        if not _compiles(name):
            return f"; a column whose name is no single word is written {{{{ row[{name!r}] }}}}"
    return " (columns stand in {{ }}; single braces are literal)"


def _compiles(expression: str) -> bool:
    try:
        sandbox().parse("{{ " + expression + " }}")
    except TemplateSyntaxError:
        return False
    return True


def _refuse_hidden(tree: nodes.Template) -> None:
    if any(True for _ in meta.find_referenced_templates(tree)):
        raise JobError("a template cannot include, import or extend another file; use @FILE")
    for node in tree.find_all((nodes.Getattr, nodes.Getitem, nodes.Filter)):
        hidden = _hidden_name(node)
        if hidden is not None:
            raise JobError(f'a template must not reach for `{hidden}`; a column of that name is row["{hidden}"]')


def _hidden_name(node: nodes.Node) -> str | None:
    if isinstance(node, nodes.Getattr):
        name: object = node.attr
    elif isinstance(node, nodes.Getitem):
        of_row = isinstance(node.node, nodes.Name) and node.node.name == "row"
        name = node.arg.value if isinstance(node.arg, nodes.Const) and not of_row else ""
        name = name if str(name).startswith("__") else ""
    elif isinstance(node, nodes.Filter) and node.name in ("attr", "map", "selectattr", "rejectattr", "sort"):
        words = [part.value for part in node.find_all(nodes.Const) if isinstance(part.value, str)]
        name = next((word for word in words if word.startswith("__")), "")
    else:
        return None
    return name if isinstance(name, str) and name.startswith("_") else None


def uses_index(text: str) -> bool:
    """Whether what a template gives depends on the row's index, `_row`."""
    return "_row" in text and "_row" in meta.find_undeclared_variables(checked_tree(text))


def used_columns(tree: nodes.Template) -> Columns | None:
    names = meta.find_undeclared_variables(tree)
    if "row" not in names:
        return frozenset(names - OWN_NAMES)
    constants = [name for node in tree.find_all((nodes.Getitem, nodes.Getattr)) if (name := _constant(node))]
    if len(constants) != sum(node.name == "row" for node in tree.find_all(nodes.Name)):
        return None
    return frozenset(names - OWN_NAMES | set(constants))


def _constant(node: nodes.Node) -> str | None:
    """The column in `row["x"]` or `row.x`, None for any other use."""
    target = node.node if isinstance(node, nodes.Getitem | nodes.Getattr) else None
    if not isinstance(target, nodes.Name) or target.name != "row":
        return None
    if isinstance(node, nodes.Getattr):
        return None if node.attr in _ROW_METHODS else node.attr
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str):
        return node.arg.value
    return None


def _simple_parts(tree: nodes.Template) -> tuple[tuple[bool, str], ...] | None:
    """(is a column, its name or the text) in order; None where the template does more than that."""
    parts: list[tuple[bool, str]] = []
    for output in tree.body:
        if not isinstance(output, nodes.Output):
            return None
        for node in output.nodes:
            if isinstance(node, nodes.TemplateData):
                parts.append((False, node.data))
            elif isinstance(node, nodes.Name) and node.name not in OWN_NAMES:
                parts.append((True, node.name))
            elif isinstance(node, nodes.Getitem) and (column := _constant(node)) is not None:
                parts.append((True, column))
            else:
                return None
    return tuple(parts)
