"""Failures of an object store, by their outcome.

Definite: ObjectNotFound, PreconditionFailed, StoreFull, StoreRefused, StoreUnsuitable: nothing was changed.
Unknown: StoreUnavailable: the request was applied, will be applied later, or never will be. It may be repeated.
"""


class StoreError(Exception):
    """A failed request to the store; `key` is "" if the request named no key."""

    def __init__(self, key: str, reason: str = "") -> None:
        super().__init__(f"{key or 'object store'}: {reason or self.__class__.__name__}")
        self.key = key
        self.reason = reason


class ObjectNotFound(StoreError):
    """No object has this key."""


class PreconditionFailed(StoreError):
    """The object's state does not match the condition."""


class StoreUnavailable(StoreError):
    """Timeout, lost connection, 409 or 5xx: the outcome is unknown, and the request may be repeated."""


class StoreFull(StoreError):
    """The store is full and nothing was written. Requests succeed when there is space again."""


class StoreRefused(StoreError):
    """Wrong credentials, missing permission, no such bucket, or an invalid key."""


class StoreUnsuitable(StoreError):
    """The store does not support what the commit protocol needs."""
