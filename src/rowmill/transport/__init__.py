"""Owns HTTP: request bytes in, status, headers and body out; must not know what the bytes mean."""

from collections.abc import Mapping

TABLE: Mapping[str, str] = {"pyreqwest": "rowmill.transport.pyreqwest_:PyreqwestTransport"}
