"""Waits for a database so that Ctrl-C ends it; must not know which database."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")

CANCELLING_S = 5.0


def awaited(call: Callable[[], T], cancel: Callable[[], object]) -> T:
    """What `call` gives.  Where the main thread is interrupted meanwhile, `cancel` is called, which has it end.

    A driver's call does not return before the database answers, and a signal's handler waits for it in the main
    thread; so it is made in another one.
    """
    if threading.current_thread() is not threading.main_thread():
        return call()
    ending: Future[T] = Future()

    def work() -> None:
        try:
            ending.set_result(call())
        except BaseException as error:
            ending.set_exception(error)

    worker = threading.Thread(target=work, name="rowmill-statement", daemon=True)
    worker.start()
    try:
        return ending.result()
    finally:
        if not ending.done():
            with contextlib.suppress(Exception):  # the connection may be broken; it is closed next
                cancel()
            worker.join(CANCELLING_S)
