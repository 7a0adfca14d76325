"""Failures of an object store, by what is known of the outcome.

Definite: ObjectNotFound, PreconditionFailed, StoreFull, StoreRefused, StoreUnsuitable: nothing was changed.
Unknown: StoreUnavailable: the request was applied, will be applied later, or never; it may be repeated.
"""


class StoreError(Exception):
    """Something between us and the store; `key` is "" when the request named no key."""

    def __init__(self, key: str, reason: str = "") -> None:
        super().__init__(f"{key or 'object store'}: {reason or self.__class__.__name__}")
        self.key = key
        self.reason = reason


class ObjectNotFound(StoreError):
    """No object has this key."""


class PreconditionFailed(StoreError):
    """The object's state is not the one the condition asked for."""


class StoreUnavailable(StoreError):
    """Timeout, lost connection, 409 or 5xx: the outcome is unknown, the same request may be sent again."""


class StoreFull(StoreError):
    """No room: nothing was written; passes when there is room again."""


class StoreRefused(StoreError):
    """Credentials, permission, no such bucket, a key that the store cannot hold."""


class StoreUnsuitable(StoreError):
    """The store does not do what the commit protocol needs."""
