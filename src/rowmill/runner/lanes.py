"""From the job's endpoints to providers over transports: resolves presets and keys, opens, closes."""

from __future__ import annotations
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from rowmill.answers import AnswerSchema
from rowmill.engine.lane import LaneConfig
from rowmill.errors import JobError
from rowmill.job import EndpointSpec, Job
from rowmill.ports import Provider
from rowmill.transport.pyreqwest_ import PyreqwestTransport
from rowmill.providers.tmp import P

@dataclass(frozen=True, slots=True)
class Endpoint:
    spec: EndpointSpec
    key: str|None
    @property
    def name(self): return self.spec.model
    @property
    def model(self): return self.spec.model
    @property
    def address(self): return self.spec.url
    @property
    def in_flight(self): return self.spec.limit
    def lane_config(self, job): return LaneConfig(self.name, self.model, self.in_flight, job.timeout_s, job.max_outage_s)

def resolve_endpoints(job, schema):
    return [Endpoint(e, os.environ.get(e.key_env) if e.key_env else None) for e in job.endpoints]
def secrets_of(endpoints): return [e.key for e in endpoints if e.key]

@asynccontextmanager
async def open_providers(job, schema, endpoints):
    ts=[]
    for e in endpoints:
        t=PyreqwestTransport(connect_timeout_s=job.connect_timeout_s, ca_file=e.spec.ca_file)
        ts.append(P(t,e.spec.url,e.model,{"authorization":"Bearer "+e.key} if e.key else {},schema))
    try: yield ts
    finally:
        for t in ts: await t.t.close()
