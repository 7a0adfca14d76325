"""The users and roles of an etcd, for commands that set them up as root.

Each method is one request. It raises EtcdError. Before authentication is enabled, etcd takes these requests from
anybody; afterwards only from a user with the role root.
"""

from __future__ import annotations

from typing import Final, TypeVar

from google.protobuf.message import Message
from kafscale.etcd.v3 import rpc_pb2 as pb
from kafscale.storage.etcd.errors import EtcdRejected
from kafscale.storage.etcd.pool import AUTHENTICATE, Method, Pool
from kafscale.storage.etcd.transport import Access
from kafscale.storage.rights.etcd import KeyRange, Permission, Rights

TIMEOUT_S: Final = 5.0

Answer = TypeVar("Answer", bound=Message)
_TYPES: Final = {
    Permission.READ: pb.Permission.READ,
    Permission.WRITE: pb.Permission.WRITE,
    Permission.READWRITE: pb.Permission.READWRITE,
}
_PERMISSIONS: Final = {number: permission for permission, number in _TYPES.items()}


class EtcdUsers:
    def __init__(self, access: Access) -> None:
        self._pool = Pool(access)

    async def close(self) -> None:
        await self._pool.close()

    async def rights_of_role(self, role: str) -> Rights | None:
        """None: there is no such role."""
        try:
            answer = await self._ask("RoleGet", pb.AuthRoleGetRequest(role=role), pb.AuthRoleGetResponse)
        except EtcdRejected as rejected:
            if "role name not found" not in rejected.detail:
                raise
            return None
        return {KeyRange(perm.key, perm.range_end): _PERMISSIONS[perm.permType] for perm in answer.perm}

    async def add_role(self, role: str) -> None:
        await self._ask("RoleAdd", pb.AuthRoleAddRequest(name=role), pb.AuthRoleAddResponse)

    async def grant(self, role: str, keys: KeyRange, permission: Permission) -> None:
        """In place of the permission that the role has for exactly these keys."""
        perm = pb.Permission(permType=_TYPES[permission], key=keys.first, range_end=keys.end)
        request = pb.AuthRoleGrantPermissionRequest(name=role, perm=perm)
        await self._ask("RoleGrantPermission", request, pb.AuthRoleGrantPermissionResponse)

    async def revoke(self, role: str, keys: KeyRange) -> None:
        request = pb.AuthRoleRevokePermissionRequest(role=role, key=keys.first, range_end=keys.end)
        await self._ask("RoleRevokePermission", request, pb.AuthRoleRevokePermissionResponse)

    async def roles_of_user(self, user: str) -> frozenset[str] | None:
        """None: there is no such user."""
        try:
            answer = await self._ask("UserGet", pb.AuthUserGetRequest(name=user), pb.AuthUserGetResponse)
        except EtcdRejected as rejected:
            if "user name not found" not in rejected.detail:
                raise
            return None
        return frozenset(answer.roles)

    async def add_user(self, user: str, password: str) -> None:
        request = pb.AuthUserAddRequest(name=user, password=password)
        await self._ask("UserAdd", request, pb.AuthUserAddResponse)

    async def has_password(self, user: str, password: str) -> bool | None:
        """None: etcd does not check passwords, because authentication is disabled."""
        request = pb.AuthenticateRequest(name=user, password=password)
        try:
            await self._pool.once(AUTHENTICATE, request, TIMEOUT_S)
        except EtcdRejected as rejected:
            if rejected.is_without_users:
                return None
            if rejected.is_wrong_password:
                return False
            raise
        return True

    async def change_password(self, user: str, password: str) -> None:
        request = pb.AuthUserChangePasswordRequest(name=user, password=password)
        await self._ask("UserChangePassword", request, pb.AuthUserChangePasswordResponse)

    async def grant_role(self, user: str, role: str) -> None:
        request = pb.AuthUserGrantRoleRequest(user=user, role=role)
        await self._ask("UserGrantRole", request, pb.AuthUserGrantRoleResponse)

    async def revoke_role(self, user: str, role: str) -> None:
        request = pb.AuthUserRevokeRoleRequest(name=user, role=role)
        await self._ask("UserRevokeRole", request, pb.AuthUserRevokeRoleResponse)

    async def enable(self) -> None:
        """Does nothing if authentication is enabled already. Refused if the user root has not the role root."""
        await self._ask("AuthEnable", pb.AuthEnableRequest(), pb.AuthEnableResponse)

    async def _ask(self, name: str, request: Message, answer: type[Answer]) -> Answer:
        return await self._pool.once(Method(f"/etcdserverpb.Auth/{name}", answer), request, TIMEOUT_S)
