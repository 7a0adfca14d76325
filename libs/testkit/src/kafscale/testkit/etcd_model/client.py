"""A client that asks the model directly: each request is one step, without a network and without time. For tests that
need thousands of etcd's states. `server.py` has the clients that meet a network."""

from __future__ import annotations

from google.protobuf.message import Message
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.etcd.errors import classify
from kafscale.storage.etcd.pool import Answer, Method, Pool
from kafscale.storage.etcd.transport import Access
from kafscale.testkit.etcd_model.checks import Refused
from kafscale.testkit.etcd_model.model import EtcdModel


class ModelClient(EtcdClient):
    """It has no watches. No answer says that the model went back: whoever restores it decides who learns of it."""

    def __init__(self, model: EtcdModel) -> None:
        super().__init__(Access.parse(["model"]))
        self.model = model
        self._pool = _Direct(model, self.access)


class _Direct(Pool):
    def __init__(self, model: EtcdModel, access: Access) -> None:
        super().__init__(access)
        self._model = model

    async def once(self, method: Method[Answer], request: Message, timeout_s: float) -> Answer:
        try:
            answer = self._model.serve(request)
        except Refused as refused:
            raise classify(refused.code, refused.details, "model") from None
        assert isinstance(answer, method.answer), answer
        return answer

    async def reading(self, method: Method[Answer], request: Message, timeout_s: float) -> Answer:
        return await self.once(method, request, timeout_s)
