"""Requests that upload and download files, and their replies.

Law: the bytes of a file never pass through a request. A client sends them to the address that `upload` returns, and reads
them from the address that `get_file` returns.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from helix.core.files import FilePart
from helix.core.messages import Record
from helix.core.request_fields import BaseRequest, Name, SessionId, SessionRequest

Sha256 = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]


class _OwnFile(BaseRequest):
    sha256: Sha256
    """The SHA-256 of the bytes, in hexadecimal."""
    name: Name | None = None
    """The name of the file for people and models. None for a file without a name."""
    session_id: SessionId | None = None
    """The session whose message will name the file: an existing one, or the id of a new one.

    A caller without a user must give it, because the file then belongs to the session. Otherwise it belongs to the user.
    """


class Upload(_OwnFile):
    """Ask for the address to which the client sends the bytes of a file.

    Result: `{"stored", "upload"}`. If `stored` is true, the service already has the bytes. Otherwise the client sends them
    to `upload`, and then requests `finish_upload`.
    """

    action: Literal["upload"]
    """The name of this action."""
    size: Annotated[int, Field(ge=0)]
    """The number of bytes."""
    media_type: Annotated[str, StringConstraints(max_length=128)] | None = None
    """The type of the file, such as `text/csv`. It is used only if the bytes do not show another type."""


class FinishUpload(_OwnFile):
    """Check the bytes of an upload. From then on, a message may name the file. Idempotent.

    Result: `{"file"}`, for `files` in `run`, `resume` and `retry`. An upload that no message names is deleted after a day.
    """

    action: Literal["finish_upload"]
    """The name of this action."""


class GetFile(SessionRequest):
    """Ask for an address from which the client downloads a file of the session. Result: `{"url", "expires_at"}`."""

    action: Literal["get_file"]
    """The name of this action."""
    sha256: Sha256
    """The hash of the file, as messages name it."""
    name: Name | None = None
    """The name under which a browser saves the file. None: the browser chooses."""


class UploadTarget(Record):
    """The request with which a client sends the bytes of a file."""

    url: str
    """The address of the request."""
    method: str
    """The HTTP method."""
    headers: dict[str, str]
    """The headers that the client must send unchanged. HTTP clients set `Content-Length` themselves."""
    expires_at: float
    """The time until which the request is accepted, in Unix seconds."""


class UploadBegun(Record):
    """The result of `upload`."""

    stored: bool
    """Whether the service already has the bytes."""
    upload: UploadTarget | None
    """The request with which to send the bytes. None if they are stored."""


class UploadFinished(Record):
    """The result of `finish_upload`."""

    file: FilePart
    """The file in the form in which a message names it."""


class FileAddress(Record):
    """The result of `get_file`."""

    url: str
    """The address of the bytes. A browser saves them rather than displaying them."""
    expires_at: float
    """The time until which the address works, in Unix seconds."""
