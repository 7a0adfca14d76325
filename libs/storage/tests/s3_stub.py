"""An S3 server in memory that misbehaves on request."""

import base64
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from xml.etree import ElementTree

from aiohttp import web
from kafscale.storage.objects import S3Config

Answer = web.Response | web.StreamResponse
ENCRYPTION = "x-amz-server-side-encryption"
ERROR_XML = "<?xml version='1.0'?><Error><Code>{}</Code><Message>on request</Message></Error>"


@dataclass
class Stub:
    """A bucket in memory that keeps conditions, except those in `ignore`."""

    ignore: frozenset[str] = frozenset()
    answers: list[Callable[[web.Request], Answer]] = field(default_factory=list)
    objects: dict[str, tuple[bytes, dict[str, str]]] = field(default_factory=dict)
    requests: list[web.Request] = field(default_factory=list)
    endpoint: str = ""

    def config(self, **changes: object) -> S3Config:
        values: dict[str, object] = {"request_timeout_s": 5.0, **changes}
        return S3Config(
            bucket="bucket",
            endpoint=self.endpoint,
            access_key_id="AK",
            secret_access_key="SK",
            **values,  # type: ignore[arg-type]
        )

    async def handle(self, request: web.Request) -> Answer:
        body = await request.read()
        self.requests.append(request)
        if self.answers:
            return self.answers.pop(0)(request)
        key = request.path.removeprefix("/bucket/")
        found = self.objects.get(key)
        if request.method == "POST" and "delete" in request.query:
            return self._delete_many(request, body)
        if request.path == "/bucket":
            return web.Response(text="<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>")
        if self._fails(request, found):
            return error(412, "PreconditionFailed")
        if request.method == "PUT":
            metadata = {
                name: value for name, value in request.headers.items() if name.startswith("x-amz-meta-")
            }
            self.objects[key] = (body, metadata)
            asked = {} if "encryption" in self.ignore else request.headers
            sse = {ENCRYPTION: asked[ENCRYPTION]} if ENCRYPTION in asked else {}
            return web.Response(headers={"ETag": etag_of(body), **sse})
        if request.method == "DELETE":
            self.objects.pop(key, None)
            return web.Response(status=204)
        if found is None:
            return error(404, "NoSuchKey")
        return web.Response(body=found[0], headers={"ETag": etag_of(found[0]), **found[1]})

    def _delete_many(self, request: web.Request, body: bytes) -> Answer:
        if "DeleteObjects" in self.ignore:
            return error(501, "NotImplemented")
        if request.headers["Content-MD5"] != base64.b64encode(hashlib.md5(body).digest()).decode():
            return error(400, "BadDigest")
        said = ""
        for item in ElementTree.fromstring(body).iterfind("{*}Object"):
            key, etag = item.findtext("{*}Key", ""), item.findtext("{*}ETag")
            found = self.objects.get(key)
            if etag is not None and "DeleteObjects ETag" not in self.ignore:
                code = "NoSuchKey" if found is None else "PreconditionFailed"
                if found is None or etag_of(found[0]) != etag:
                    said += f"<Error><Key>{key}</Key><Code>{code}</Code><Message>so</Message></Error>"
                    continue
            self.objects.pop(key, None)
            said += f"<Deleted><Key>{key}</Key></Deleted>"
        return web.Response(text=f"<DeleteResult>{said}</DeleteResult>")

    def _fails(self, request: web.Request, found: tuple[bytes, dict[str, str]] | None) -> bool:
        absent, match = request.headers.get("If-None-Match"), request.headers.get("If-Match")
        if absent and f"{request.method} If-None-Match" not in self.ignore and found is not None:
            return True
        ranged = " of a range" if "Range" in request.headers else ""
        if match and f"{request.method} If-Match{ranged}" not in self.ignore:
            return found is None or etag_of(found[0]) != match
        return False


def etag_of(body: bytes) -> str:
    return f'"{hashlib.md5(body).hexdigest()}"'


def error(status: int, code: str) -> web.Response:
    return web.Response(status=status, text=ERROR_XML.format(code), content_type="application/xml")


def cut_off(request: web.Request) -> Answer:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


@asynccontextmanager
async def serving(server: Stub) -> AsyncIterator[Stub]:
    app = web.Application(client_max_size=1 << 25)
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.endpoint = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield server
    await runner.cleanup()
