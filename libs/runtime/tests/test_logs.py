"""Log lines: one event each, with the ids of the process and of the request at hand."""

import json
import os
import subprocess
import sys

import pytest

LOGGING = """
import logging, sys
from kafscale.runtime.logs import CURRENT_REQUEST, configure_logs
from kafscale.runtime.stream.frame import RequestMeta
import structlog
ids = configure_logs(level="info", form=sys.argv[1], service="fetch")
ids["instance"] = "1/boot"
log = structlog.get_logger("x")
log.debug("too small")
log.info("outside")
CURRENT_REQUEST.set(RequestMeta(connection_id=5, correlation_id=8, api_key=1, api_version=4, client_id="me",
    traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"))
try:
    1 / 0
except ZeroDivisionError:
    log.exception("inside")
logging.getLogger("library").warning("its own %s", "way")
"""


def logged(form: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", LOGGING, form],
        capture_output=True,
        text=True,
        check=True,
        env=dict(os.environ),
    )
    assert done.stdout == ""
    return done.stderr.splitlines()


def test_each_json_line_names_the_process_and_the_request_at_hand() -> None:
    outside, inside, library = map(json.loads, logged("json"))
    assert (outside["event"], outside["service"], outside["instance"]) == ("outside", "fetch", "1/boot")
    assert "connection_id" not in outside
    assert (inside["connection_id"], inside["correlation_id"], inside["client_id"]) == (5, 8, "me")
    assert (inside["api_key"], inside["api"], inside["api_version"]) == (1, "Fetch", 4)
    assert inside["logger"] == "x"
    assert inside["trace_id"] == "0af7651916cd43dd8448eb211c80319c"
    assert "ZeroDivisionError" in inside["exception"]
    assert (library["event"], library["level"], library["service"]) == ("its own way", "warning", "fetch")


def test_plain_lines_are_for_people() -> None:
    lines = logged("plain")
    assert "outside" in lines[0]
    assert "service=fetch" in lines[0]
    assert not any("too small" in line for line in lines)


def test_without_a_form_a_file_gets_json_and_a_terminal_plain_lines() -> None:
    code = LOGGING.replace("form=sys.argv[1]", "form=None")
    command = [sys.executable, "-c", code]
    piped = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(piped.stderr.splitlines()[0])["event"] == "outside"
    ours, theirs = os.openpty()
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        subprocess.run(command, stderr=theirs, check=True)
        os.close(theirs)
        assert b"{" not in terminal.read(200).splitlines()[0]


ESCAPES = """
from kafscale.runtime.logs import CURRENT_REQUEST, configure_logs
from kafscale.runtime.stream.frame import RequestMeta
import structlog, sys
configure_logs(level="info", form=sys.argv[1], service="fetch")
CURRENT_REQUEST.set(RequestMeta(connection_id=5, api_key=1, api_version=4, client_id="me\\x1b]0;title\\x07"))
structlog.get_logger("x").info("heard\\x9b2J", names=["a\\x1b[31m"])
"""


@pytest.mark.parametrize("form", ["json", "plain"])
def test_no_form_prints_control_codes_that_a_client_chose(form: str) -> None:
    done = subprocess.run([sys.executable, "-c", ESCAPES, form], capture_output=True, text=True, check=True)
    assert "title" in done.stderr
    assert not any(code in done.stderr for code in ("\x1b", "\x07", "\x9b", "u001b"))


SECRETS = """
from kafscale.runtime.logs import configure_logs
import structlog, sys
configure_logs(level="info", form=sys.argv[1], service="fetch")
password = "hunter2"
try:
    raise OSError("cannot reach redis://me:hunter2@cache:6379")
except OSError:
    structlog.get_logger("x").exception("lost", settings={"s3_secret_access_key": "hunter2"})
"""


@pytest.mark.parametrize("form", ["json", "plain"])
def test_no_form_prints_a_secret_nor_the_values_of_variables(form: str) -> None:
    done = subprocess.run([sys.executable, "-c", SECRETS, form], capture_output=True, text=True, check=True)
    assert "OSError" in done.stderr
    assert done.stderr.count("hunter2") == 0, done.stderr


AUDIT = """
from kafscale.runtime.logs import configure_logs
import structlog, sys
configure_logs(level="info", form=sys.argv[1], service="fetch")
who = "User:system:serviceaccount:secret-manager:"
structlog.get_logger("kafscale.audit").info("denied", principal=who + "job", resource="TOPIC:LITERAL:token=1\x1b[31m")
structlog.get_logger("x").info("denied", principal=who + "other")
"""


@pytest.mark.parametrize("form", ["json", "plain"])
def test_the_audit_log_hides_no_name_and_prints_no_control_code(form: str) -> None:
    done = subprocess.run([sys.executable, "-c", AUDIT, form], capture_output=True, text=True, check=True)
    assert "User:system:serviceaccount:secret-manager:job" in done.stderr
    assert "TOPIC:LITERAL:token=1" in done.stderr
    assert not any(code in done.stderr for code in ("\x1b", "u001b"))
    assert "secret-manager:other" not in done.stderr
