"""Python values as JSON and back, the same type again; must not know where they are stored.

JSON's own values stand as they are.  Everything else is an object with the key `$rowmill`, which says what it is.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import enum
import json
import math
import sys
from collections.abc import Callable, Mapping
from decimal import Decimal
from importlib import import_module
from typing import Any

from rowmill.errors import RowmillError

TAG = "$rowmill"
_DEEPEST = 100
_SUBCLASSED = (str, int, float, list, tuple, dict)
_PLAIN = frozenset({str, int, bool, type(None)})
_SUBCLASS = f'{{"{TAG}":"subclass"'


class CodecError(RowmillError):
    """A value that cannot be stored so that the same value comes back; says which type, and where in the value."""


def encode(value: Any) -> bytes:
    """The value as JSON in UTF-8.  Raises CodecError."""
    tree = to_tree(value)
    try:
        return json.dumps(tree, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # half a surrogate pair can stand only as an escape
        return json.dumps(tree, separators=(",", ":")).encode()


def decode(text: bytes | str) -> Any:
    """The value that `encode` wrote.  Raises CodecError where its class is gone or refuses it."""
    return from_tree(json.loads(text))


def encode_proven(value: Any) -> bytes:
    """As `encode`, of a value that has been seen to come back: read again, it is written as the same text.

    Raises CodecError for one that does not.
    """
    body = encode(value)
    # JSON's own values stand as they are; whatever else there is has the tag somewhere.
    if TAG.encode() in body and encode(decode(body)) != body:
        raise CodecError(f"a {type(value).__qualname__} does not come back as it was")
    return body


def readable(text: str) -> dict[str, Any] | None:
    """An encoded subclass of str as its text and its class, for people to read; None for any other value."""
    if not text.startswith(_SUBCLASS):
        return None
    tree = json.loads(text)
    return {"answer": tree["value"], "class": tree["class"]} if isinstance(tree["value"], str) else None


def decode_readable(stored: Mapping[str, Any]) -> Any:
    """The value of a stored answer: what `readable` took apart, or what `encode` wrote, parsed already."""
    if "class" in stored:
        return from_tree(_tagged("subclass", stored["answer"], stored["class"]))
    return from_tree(stored["answer"])


def to_tree(value: Any, path: str = "", depth: int = 0) -> Any:
    """The value as JSON's own values.  Raises CodecError."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if depth > _DEEPEST:
        raise CodecError(f"{path or 'the value'}: nested too deeply to be stored")
    if kind is float:
        return value if math.isfinite(value) else _tagged("float", repr(value))
    if kind is list:
        return [to_tree(item, f"{path}[{at}]", depth + 1) for at, item in enumerate(value)]
    if kind is dict:
        return _dict_tree(value, path, depth)
    if kind in _SCALARS:
        name, write, _ = _SCALARS[kind]
        return _tagged(name, write(value))
    if kind is tuple:
        return _tagged("tuple", [to_tree(item, f"{path}[{at}]", depth + 1) for at, item in enumerate(value)])
    if kind in (set, frozenset):  # sorted, so that equal sets have equal trees
        return _tagged(kind.__name__, sorted((to_tree(item, path, depth + 1) for item in value), key=json.dumps))
    return _object_tree(value, path, depth)


def _dict_tree(value: dict[Any, Any], path: str, depth: int) -> Any:
    if TAG not in value and all(type(name) is str for name in value):
        return {name: to_tree(item, f"{path}.{name}", depth + 1) for name, item in value.items()}
    pairs = [
        [to_tree(name, path, depth + 1), to_tree(item, f"{path}[{name!r}]", depth + 1)] for name, item in value.items()
    ]
    return _tagged("dict", pairs)


def _object_tree(value: Any, path: str, depth: int) -> Any:
    """Enums, pydantic models (so LangChain's messages), dataclasses and subclasses, by the name of their class."""
    kind = type(value)
    if isinstance(value, enum.Enum):
        return _tagged("enum", value.name, _name_of(kind, path))
    if hasattr(kind, "__pydantic_validator__") and hasattr(value, "model_dump"):
        return _model_tree(value, path, depth)
    if dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(value)]
        return _tagged(
            "dataclass", _parts({name: getattr(value, name) for name in names}, path, depth), _name_of(kind, path)
        )
    for plain in _SUBCLASSED:
        if isinstance(value, plain):
            return _subclass_tree(value, plain, path, depth)
    raise CodecError(
        f"{path or 'the value'} is of type {kind.__module__}.{kind.__qualname__}, which a run file cannot hold: "
        "JSON's types, dates, bytes, pydantic models, dataclasses, enums and LangChain messages can be stored; "
        "without run_file any object is kept"
    )


def _model_tree(value: Any, path: str, depth: int) -> Any:
    """Fields, extras and private attributes as the objects that they are, so that each keeps its own class."""
    kind = type(value)
    if kind.__pydantic_root_model__:
        return _tagged("model", to_tree(value.root, path, depth + 1), _name_of(kind, path))
    state = {name: value.__dict__[name] for name in kind.model_fields if name in value.__dict__}
    parts = _parts({**state, **(value.__pydantic_extra__ or {})}, path, depth)
    tree = _tagged("model", parts, _name_of(kind, path))
    if value.__pydantic_private__:
        tree["private"] = _parts(value.__pydantic_private__, path, depth)
    return tree


def _parts(state: Mapping[str, Any], path: str, depth: int) -> dict[str, Any]:
    return {name: to_tree(part, f"{path}.{name}", depth + 1) for name, part in state.items()}


def _subclass_tree(value: Any, plain: Any, path: str, depth: int) -> Any:
    if getattr(value, "__dict__", None):
        names = ", ".join(value.__dict__)
        raise CodecError(f"{path or 'the value'} is a {type(value).__qualname__} with attributes ({names})")
    bare = str.__str__(value) if plain is str else plain(value)
    return _tagged("subclass", to_tree(bare, path, depth + 1), _name_of(type(value), path))


def from_tree(tree: Any) -> Any:
    """The value that `to_tree` took apart.  Raises CodecError."""
    if type(tree) is list:
        return [from_tree(item) for item in tree]
    if type(tree) is not dict:
        return tree
    if TAG not in tree:
        return {name: from_tree(item) for name, item in tree.items()}
    name, content = tree[TAG], tree.get("value")
    if name in _READ:
        return _READ[name](content)
    try:
        made = _object_from(name, content, _class_at(str(tree.get("class"))))
        if "private" in tree:
            object.__setattr__(made, "__pydantic_private__", _from_parts(tree["private"]))
        return made
    except (TypeError, ValueError, KeyError) as error:
        raise CodecError(f"a stored {tree.get('class')} cannot be read by the class of today: {error}") from None


def _object_from(name: str, content: Any, kind: Any) -> Any:
    if name == "enum" and isinstance(kind, enum.EnumMeta):
        return kind[content]
    if name == "model" and hasattr(kind, "model_validate"):
        return kind.model_validate(from_tree(content) if kind.__pydantic_root_model__ else _from_parts(content))
    if name == "dataclass" and dataclasses.is_dataclass(kind):
        return _dataclass_from(kind, _from_parts(content))
    if name == "subclass" and issubclass(kind, _SUBCLASSED):
        return getattr(kind, "_make", kind)(from_tree(content))
    raise CodecError(f"a stored value is marked {name}, which {kind!r} is not")


def _from_parts(content: Mapping[str, Any]) -> dict[str, Any]:
    return {name: from_tree(part) for name, part in content.items()}


def _dataclass_from(kind: Any, values: Mapping[str, Any]) -> Any:
    """Fields that `__init__` does not take are set behind its back, as they were."""
    taken = {field.name for field in dataclasses.fields(kind) if field.init}
    made = kind(**{name: value for name, value in values.items() if name in taken})
    for name, value in values.items():
        if name not in taken:
            object.__setattr__(made, name, value)
    return made


def _tagged(name: str, value: Any, class_name: str | None = None) -> dict[str, Any]:
    tree = {TAG: name, "value": value}
    return tree if class_name is None else {**tree, "class": class_name}


def _name_of(kind: type, path: str) -> str:
    name = f"{kind.__module__}:{kind.__qualname__}"
    try:
        found = _class_at(name)
    except CodecError:
        found = None
    if found is not kind:
        raise CodecError(
            f"{path or 'the value'} is of the class {kind.__qualname__}, which cannot be found again by its name: "
            "define it at the top of a module"
        )
    return name


def _class_at(name: str) -> Any:
    module, _, path = name.partition(":")
    try:
        found: Any = sys.modules[module] if module in sys.modules else import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError):
        raise CodecError(f"the class {name} of a stored value is not there any more") from None
    return found


def _text(value: Any) -> str:
    return base64.b64encode(value).decode()


def _timedelta_of(parts: Any) -> datetime.timedelta:
    return datetime.timedelta(days=parts[0], seconds=parts[1], microseconds=parts[2])


# type -> its mark, how it is written, how it is read
_SCALARS: Mapping[type, tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = {
    bytes: ("bytes", _text, base64.b64decode),
    bytearray: ("bytearray", _text, lambda text: bytearray(base64.b64decode(text))),
    datetime.datetime: ("datetime", datetime.datetime.isoformat, datetime.datetime.fromisoformat),
    datetime.date: ("date", datetime.date.isoformat, datetime.date.fromisoformat),
    datetime.time: ("time", datetime.time.isoformat, datetime.time.fromisoformat),
    datetime.timedelta: ("timedelta", lambda t: [t.days, t.seconds, t.microseconds], _timedelta_of),
    Decimal: ("decimal", str, Decimal),
}
_READ: Mapping[str, Callable[[Any], Any]] = {
    "float": float,
    "tuple": lambda items: tuple(map(from_tree, items)),
    "set": lambda items: set(map(from_tree, items)),
    "frozenset": lambda items: frozenset(map(from_tree, items)),
    "dict": lambda pairs: {from_tree(name): from_tree(item) for name, item in pairs},
    **{name: read for name, _, read in _SCALARS.values()},
}
