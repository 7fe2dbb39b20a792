"""A process of its own: llama.cpp's server on a free loopback port, alive as long as its standard input is open.

Run by path, with the weights' file and the model's name; prints its URL.  It must not import Rowmill.
"""

import os
import sys

SLOTS = 8

_CONTEXT_TOKENS = 1024  # of each slot
_MOST_THREADS = 8  # more only wait for each other: the model is small
_SILENT = -1


def serve(weights: str, name: str) -> None:
    """Loads, prints the URL, and ends when standard input does: when the parent closes it or dies."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = weights
    params.model_alias = {name}
    params.n_parallel = SLOTS
    params.n_ctx = SLOTS * _CONTEXT_TOKENS
    params.n_threads_http = SLOTS + 2
    for cpu in (params.cpuparams, params.cpuparams_batch):
        cpu.n_threads = min(_cores(), _MOST_THREADS)
        cpu.poll = 0  # idle threads sleep: Rowmill itself needs the cores, too
    params.port = 0
    params.hostnames = ["127.0.0.1"]
    params.verbosity = _SILENT
    params.cache_prompt = True  # each slot keeps the beginning that all prompts share
    params.cache_ram_mib = 0
    params.warmup = params.ui = params.endpoint_slots = False
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.buffer.read()
    # Without farewell: freeing the server waits for ever for requests that are still being answered.
    os._exit(0)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


if __name__ == "__main__":
    serve(*sys.argv[1:])
