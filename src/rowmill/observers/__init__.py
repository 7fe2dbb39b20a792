"""Those who watch a run: they are told rare events, read figures by themselves, and change nothing."""

from collections.abc import Mapping

TABLE: Mapping[str, str] = {"progress": "rowmill.observers.progress:Progress"}
