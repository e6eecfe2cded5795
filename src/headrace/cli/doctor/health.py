"""The doctor's check of a node's health page."""

from __future__ import annotations

import json
from http.client import HTTPConnection, HTTPException

from headrace.cli.doctor.findings import CheckResult, fail, ok
from headrace.security.listeners import show_address

_BODY_MAX_BYTES = 64 << 10


def check_health(host: str, port: int, timeout_s: float, *, has_broker: bool) -> CheckResult:
    """The answer of `/health/ready`; without a broker, none is expected."""
    name = f"health on port {port}"
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    connection = HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.request("GET", "/health/ready")
        answer = connection.getresponse()
        said = json.loads(answer.read(_BODY_MAX_BYTES))
        if said["ready"] is True:
            return ok(name, "the node is ready")
        missing = ", ".join(f"{what} ({why})" for what, why in said["missing"].items())
        return fail(name, f"the node is not ready, missing: {missing}", "check the broker's log")
    except ConnectionRefusedError:
        if not has_broker:
            return ok(name, f"nothing listens on {show_address(host, port)}")
        return fail(name, "the running broker does not answer there", f"start it with --http-port {port}")
    except (OSError, HTTPException) as error:
        return fail(name, f"no answer on {show_address(host, port)}: {error}", "check the broker's log")
    except (ValueError, LookupError, TypeError, AttributeError):
        return fail(name, "something other than a headrace node answers there", "choose another port with --http-port")
    finally:
        connection.close()
