"""`rowmill simulate`: settings from arguments, the base URL on the first line printed, the counters on the last."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from typing import TYPE_CHECKING, TextIO

from rowmill.simulator.behaviour import Behaviour, Latency, Outage
from rowmill.simulator.server import Listener, new_loop

if TYPE_CHECKING:
    from collections.abc import Sequence

LAST_PORT = 65_535


def _share(text: str) -> float:
    return float(text[:-1]) / 100 if text.endswith("%") else float(text)


def _latency(text: str) -> Latency:
    try:
        return Latency.parse(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not 0.5, 0.1-0.9 or lognormal:MEDIAN,SIGMA") from None


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > LAST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is not between 0 and {LAST_PORT}")
    return int(text)


def parser() -> argparse.ArgumentParser:
    """What the command understands."""
    made = argparse.ArgumentParser(
        prog="rowmill simulate",
        description="An OpenAI-compatible server to rehearse with: latency, limits and faults as you like.",
        epilog="The first line printed is the base URL, the last (at Ctrl-C) what was counted, as JSON.",
        allow_abbrev=False,
    )
    made.add_argument("--host", default="127.0.0.1")
    made.add_argument("--port", type=_port, default=0, help="0 takes a free one")
    made.add_argument(
        "--latency", type=_latency, default=Latency(), help="0.5, 0.1-0.9 or lognormal:MEDIAN,SIGMA (seconds)"
    )
    made.add_argument("--slots", type=_count, help="answers made at a time; the rest queues")
    for name in ("rpm", "tpm", "input-tpm", "output-tpm"):
        made.add_argument(f"--{name}", type=_count)
    made.add_argument("--window-s", type=float, default=60.0, help="the sliding window of the limits")
    made.add_argument("--dialect", default="openai", choices=["openai", "anthropic", "groq", "none"])
    made.add_argument("--retry-after", default="seconds", choices=["seconds", "fraction", "ms", "date", "none"])
    made.add_argument("--fail", type=_share, default=0.0, help="share of requests that fail: 0.02 or 2%%")
    made.add_argument("--fail-status", default="500")
    made.add_argument("--fault", action="append", default=[], metavar="STEP:SHARE", help="for example hang:1%%")
    made.add_argument("--outage", action="append", default=[], metavar="START:END[:STEP]", help="seconds")
    made.add_argument("--script", action="append", default=[], metavar="TOKEN:STEPS", help="row-17:503,503,ok")
    made.add_argument("--answer", default="{token}")
    made.add_argument("--output-tokens", type=int, default=8)
    made.add_argument("--cached-share", type=_share, default=0.0)
    made.add_argument("--model", action="append", dest="models", help="the only models there are")
    made.add_argument("--context-tokens", type=int)
    made.add_argument("--drip-s", type=float, default=5.0)
    made.add_argument("--seed", type=int, default=0)
    return made


def _outage(text: str) -> Outage:
    start_s, end_s, *kind = text.split(":", 2)
    return Outage(float(start_s), float(end_s), kind[0] if kind else "refuse")


def behaviour_from(options: argparse.Namespace) -> Behaviour:
    """The settings that the arguments name; raises ValueError."""
    faults = {options.fail_status: options.fail} if options.fail else {}
    for text in options.fault:
        step, _, share = text.rpartition(":")
        faults[step] = _share(share)
    named = (
        "latency slots rpm tpm input_tpm output_tpm window_s dialect retry_after answer output_tokens "
        "cached_share models context_tokens drip_s seed"
    )
    return Behaviour(
        faults=faults,
        outages=tuple(_outage(text) for text in options.outage),
        scripts=dict(text.split(":", 1) for text in options.script),
        **{name: getattr(options, name) for name in named.split()},
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Serves until SIGINT (exit code 0) or SIGTERM (143), then prints what it saw as one JSON object."""
    understood = parser()
    options = understood.parse_args(arguments)
    try:
        listener = Listener(behaviour_from(options), options.host, options.port, None)
    except ValueError as fault:
        understood.error(str(fault))
    loop = new_loop()
    try:
        loop.run_until_complete(listener.open())
    except OSError as fault:
        loop.close()
        understood.error(f"cannot listen on {options.host}:{options.port}: {fault}")
    url = f"http://{options.host}:{listener.port}/v1"
    _say(url, sys.stdout)
    _say(f"A run against it: rowmill run SOURCE -p '{{{{ column }}}}' -m sim --url {url}", sys.stderr)
    _say(f"What it has seen: curl {url.removesuffix('/v1')}/counters (also printed at its end)", sys.stderr)
    received: list[int] = []

    def stop(number: int) -> None:
        received.append(number)
        loop.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(listener.close())
        loop.close()
    _say(json.dumps(listener.desk.counters.report()), sys.stdout)
    return 128 + signal.SIGTERM if signal.SIGTERM in received else 0


def _say(text: str, stream: TextIO) -> None:
    """Prints a line; whoever started the simulator need not read on."""
    try:
        print(text, file=stream, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


if __name__ == "__main__":
    sys.exit(main())
