"""From the job's endpoints to providers over transports: resolves presets and keys, opens, closes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from rowmill.answers import AnswerSchema
from rowmill.engine.lane import LaneConfig
from rowmill.errors import JobError
from rowmill.job import EndpointSpec, Job
from rowmill.ports import Provider

...
