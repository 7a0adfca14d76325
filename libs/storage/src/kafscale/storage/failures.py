"""Errors that are kept as values."""

from typing import TypeVar

E = TypeVar("E", bound=BaseException)


def without_frames(error: E) -> E:
    """The same error, without its traceback and those of its causes.

    A traceback holds the frames that the error has passed, and they hold their variables: a request, an answer, a
    buffer of megabytes. One of them mostly leads back to the error. Such a reference cycle lives until the garbage
    collector runs, and that is rarely. So an error that becomes a value, or an error code, gives its frames up.
    """
    left: list[BaseException | None] = [error]
    while left:
        each = left.pop()
        if each is not None and each.__traceback__ is not None:
            each.__traceback__ = None
            left += (each.__cause__, each.__context__)
    return error
