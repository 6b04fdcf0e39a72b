"""What can go wrong, as exceptions. The text is the library's own sentence, which says what to do."""

from __future__ import annotations

import errno
from typing import Dict, Type


class Error(Exception):
    """Any failure. `code` is the library's: -errno, or 0 where the package itself refuses."""

    code: int

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.code = code

    def again(self) -> Error:
        """The same, to be raised once more: an exception keeps the frames that it went through."""
        return type(self)(str(self), self.code)


class NotRunning(Error):
    """No daemon is running, or it went away and did not come back in time."""


class Busy(Error):
    """No slot is free, or too many clients are connected: try again."""


class NotAllowed(Error):
    """The socket is not for this user."""


class Incompatible(Error):
    """The daemon speaks another version, or is not hearthd."""


class NotSupported(Error):
    """The model, the daemon or the installed library cannot do this."""


class InvalidRequest(Error, ValueError):
    """A prompt, parameter, grammar or message that makes no sense."""


class Forked(Error):
    """The connection belongs to the process that opened it: connect again after fork."""


class Closed(Error):
    """The client was closed, or is not connected yet."""


class LibraryMissing(Error):
    """libhearth.so.0 is not installed."""


_CLASSES: Dict[int, Type[Error]] = {
    errno.ENOENT: NotRunning,
    errno.ENOTDIR: NotRunning,
    errno.ECONNREFUSED: NotRunning,
    errno.ECONNRESET: NotRunning,
    errno.EPIPE: NotRunning,
    errno.ESHUTDOWN: NotRunning,
    errno.ETIMEDOUT: NotRunning,
    errno.EBUSY: Busy,
    errno.EAGAIN: Busy,
    errno.EACCES: NotAllowed,
    errno.EPROTO: Incompatible,
    errno.EPROTONOSUPPORT: Incompatible,
    errno.EOPNOTSUPP: NotSupported,
    errno.ENOSYS: NotSupported,
    errno.EINVAL: InvalidRequest,
    errno.EEXIST: InvalidRequest,
    errno.ERANGE: InvalidRequest,
    errno.E2BIG: InvalidRequest,
    errno.ENAMETOOLONG: InvalidRequest,
    errno.EPERM: Forked,
}


def make_error(code: int, text: str) -> Error:
    """The exception for a code of the library (-errno) and its sentence."""
    return _CLASSES.get(-code, Error)(text, code)
