"""The single place that classifies the exceptions of model calls.

Law: `classify` accepts every exception. Codes are stable. Messages name the model and say what to do. They never contain
secrets, and contain the provider's own words only with `HELIX_LOG_CONTENT=1`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from helix._log import content_shown
from helix.adapters.models.response_headers import limit_in, retry_after
from helix.core.errors import InvalidFileError, ModelError
from helix.core.model_limits import ReportedLimit

_ADVICE = {
    "rate_limited": "wait, lower the request rate, or add a fallback model",
    "insufficient_quota": "the account has no credit left: check plan and billing, or add a fallback model",
    "server_error": "the provider failed: try again later, or add a fallback model",
    "connection_error": "check the network and the provider's base URL, then try again",
    "stalled": "try again, or raise stall_timeout_s",
    "timeout": "try again, or raise timeout_s",
    "deadline_exceeded": "the caller's time was up: run it again, or allow more time",
    "authentication": "set the provider's API key, or correct it",
    "permission_denied": "give the API key access to this model, or choose another one",
    "bad_request": "correct the request (LLMConfig, provider_options, tool schemas); HELIX_LOG_CONTENT=1 shows why",
    "context_too_long": "shorten the conversation, send fewer or smaller files, or choose a model with a larger context "
    "window",
    "invalid_file": "send a smaller file of another type, or leave it out; HELIX_LOG_CONTENT=1 shows why",
    "store_error": "the store of the files did not respond: try again later",
    "content_filter": "the provider's content policy refused it: change the prompt",
    "refusal": "the model declined to answer: change the prompt, or choose another model",
    "max_tokens": "raise max_output_tokens, or ask for less",
    "model_not_found": "check the model id (<provider>/<model>) and that the account may use it",
    "model_error": "HELIX_LOG_CONTENT=1 shows what the provider said",
}
_RETRYABLE = frozenset(
    {
        *("rate_limited", "server_error", "connection_error", "stalled", "timeout", "deadline_exceeded"),
        "store_error",
    }
)
_OF_THE_MODEL = (_RETRYABLE - {"store_error"}) | {
    *("authentication", "permission_denied", "insufficient_quota", "model_not_found")
}
"""The codes of failures that do not depend on the request."""
_BY_STATUS = {
    400: "bad_request",
    401: "authentication",
    402: "insufficient_quota",
    403: "permission_denied",
    404: "model_not_found",
    408: "timeout",
    409: "server_error",
    413: "context_too_long",
    422: "bad_request",
    429: "rate_limited",
}
_BY_TYPE = {
    "ContextWindowExceededError": "context_too_long",
    "ContentPolicyViolationError": "content_filter",
    "LiteLLMUnknownProvider": "model_not_found",
}
_BY_BODY_CODE = {
    "server_error": "server_error",
    "context_length_exceeded": "context_too_long",
    "content_policy_violation": "content_filter",
    "content_filter": "content_filter",
    "insufficient_quota": "insufficient_quota",
    "invalid_api_key": "authentication",
    "model_not_found": "model_not_found",
    "rate_limit_exceeded": "rate_limited",
}
_FILE_CODES = frozenset(
    {
        *("invalid_image", "invalid_image_format", "invalid_base64_image", "invalid_image_url", "image_too_large"),
        *("image_too_small", "image_parse_error", "invalid_image_mode", "image_file_too_large"),
        *("unsupported_image_media_type", "empty_image_file", "failed_to_download_image", "image_file_not_found"),
        *("sanitizer_server_error", "unsupported_file", "invalid_file"),
    }
)
"""OpenAI's codes for errors about a file (`openai.types.responses.ResponseError`, and others that it sends)."""
_BY_BODY_CODE |= dict.fromkeys(_FILE_CODES, "invalid_file") | {"image_content_policy_violation": "content_filter"}
_BY_BODY_TYPE = {
    "invalid_request_error": "bad_request",
    "authentication_error": "authentication",
    "billing_error": "insufficient_quota",
    "permission_error": "permission_denied",
    "not_found_error": "model_not_found",
    "request_too_large": "context_too_long",
    "rate_limit_error": "rate_limited",
    "timeout_error": "timeout",
}
"""The codes of errors that arrive within a stream, by type. Such errors have no HTTP status."""
_BY_AWS_CODE = {
    "throttlingexception": "rate_limited",
    "toomanyrequestsexception": "rate_limited",
    "modelnotreadyexception": "rate_limited",
    "servicequotaexceededexception": "rate_limited",
    "accessdeniedexception": "permission_denied",
    "validationexception": "bad_request",
    "resourcenotfoundexception": "model_not_found",
    "modeltimeoutexception": "timeout",
    "modelerrorexception": "server_error",
    "modelstreamerrorexception": "server_error",
    "internalserverexception": "server_error",
    "serviceunavailableexception": "server_error",
    "unrecognizedclientexception": "authentication",
    "invalidsignatureexception": "authentication",
    "expiredtokenexception": "authentication",
    "expiredtoken": "authentication",
    "incompletesignature": "authentication",
}
_NO_CREDENTIALS = frozenset(
    {
        *("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "TokenRetrievalError"),
        *("SSOError", "ProfileNotFound", "CredentialsError"),
    }
)
_TOO_LONG = re.compile(
    r"(?i)(prompt|input) is too long|too many (input )?tokens|maximum context length"
    r"|exceeds? (the )?(context|maximum number of tokens)"
)
_ABOUT_FILE = re.compile(
    "(?i)"
    + "|".join(
        (
            r"(could not|unable to|cannot|failed to|error while) (process|decode|parse|read|fetch|download)",
            r"(image|document|file|media|audio|video|pdf)s?\b.{0,40} (exceeds?|is too|are too|not supported|not valid)",
            r"(unsupported|invalid|supports?|provide|include) .{0,20}(image|document|file|media|audio|video|pdf)",
            r"(image|audio|file)\w* (is|are) only supported|image dimensions|pdf pages|password.protected",
            r"too many (images|documents)|more than \d+ (images|documents)|document names?\b|\.source\.(base64|url)",
        )
    )
)
"""A pattern for errors from OpenAI, Anthropic, Bedrock and Google about a file: too large, not supported, damaged, or not
available at its URL. It is applied only to requests with files."""
_NO_SUCH_MODEL = re.compile(r"(?i)model identifier is invalid|model .*(does not|doesn't) exist")
_ABOUT_REASONING = re.compile(
    r"(?i)signature|redacted_thinking|thinking`? blocks?|encrypted[_ ]content|of type .?reasoning|\breasoning.? items?\b"
    r"|Item with id 'rs_"
)
"""A pattern for errors from Anthropic, Bedrock, OpenAI and Google about reasoning that they did not sign, or that is
missing."""
_WANTS_RESPONSES = re.compile(r"/v1/responses")
"""A pattern for OpenAI's error when a new model receives tools at /v1/chat/completions."""
_TIMEOUTS = frozenset(
    {"APITimeoutError", "TimeoutException", "TimeoutError", "ReadTimeoutError", "ConnectTimeoutError"}
)
_TRANSPORT = frozenset(
    {
        *("APIConnectionError", "TransportError", "ConnectionError", "EndpointConnectionError"),
        *("ClientConnectionError", "HTTPClientError", "ProtocolError", "ParserError"),
        *("BrokenStreamError", "JSONDecodeError", "UnicodeDecodeError"),  # the response broke off within an event
    }
)
_ENDPOINT_UNREACHABLE = frozenset({"EndpointConnectionError"})
"""botocore's errors for an unreachable host. They wrap a timeout error, but are not timeouts."""
_UNREACHED = frozenset({"ConnectError", "ConnectTimeout", "ClientConnectorError", "EndpointConnectionError"})
_SECRET = re.compile(
    r"(?i)\b(?:sk|pk|rk|key|gsk|xai|AIza|ya29|hf)[-_][\w.*-]{6,}|\bAIza[\w-]{10,}|\bbearer\s+[\w.~+/-]+=*"
)
_SECRET_NAME = re.compile(r"(?:_API_KEY|_TOKEN|_SECRET|SECRET_ACCESS_KEY|_PASSWORD)$")
_SAID = re.compile(r'"error": ?\{.*?"message": ?"((?:[^"\\]|\\.)*)"')
_WRAPPING = re.compile(
    r"^(?:(?:litellm\.)?\w*(?:Error|Exception|Timeout)(?: Error)?(?::\s*|\s+-\s+|\s+(?=\w+Error)))+"
    r"|\.? Handle with `litellm\.\w+`\.?$"
)
_DETAIL = 500


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed attempt."""

    code: str
    """The stable code, such as `rate_limited`. Some codes are retryable."""
    message: str
    """The message for people: the model, the code, details, and advice."""
    retry_after_s: float | None = None
    """The seconds to wait before a retry, if the provider specified them. None: it did not."""
    about_reasoning: bool = False
    """Whether the provider refused the reasoning that came with the conversation."""
    reported: ReportedLimit | None = None
    """The limit that the provider's response reported. None: it reported none."""

    @property
    def retryable(self) -> bool:
        return self.code in _RETRYABLE

    @property
    def about_model(self) -> bool:
        """Whether other requests to the model will probably fail too."""
        return self.code in _OF_THE_MODEL

    def error(self) -> ModelError:
        """Return the failure as an error for `on_error`, with this failure's `code`."""
        error = ModelError(self.message, retryable=self.retryable, retry_after_s=self.retry_after_s)
        vars(error)["code"] = self.code  # the class's code names the family; this one is more specific
        return error


def failure(
    model: str, code: str, detail: str, retry_after_s: float | None = None, secrets: Iterable[str] = ()
) -> Failure:
    """Return a failure of `model` with the advice for `code`. `detail` is shortened and redacted; it may be empty."""
    cleaned = redact(" ".join(detail.split()), secrets)[:_DETAIL].rstrip(". ")
    what = f"{code}: {cleaned}" if cleaned else code
    return Failure(code, f"model {model!r}: {what}; {_ADVICE.get(code, _ADVICE['model_error'])}", retry_after_s)


def classify(
    error: BaseException, model: str, *, now: float, secrets: Iterable[str] = (), with_files: bool = False
) -> Failure:
    """Classify an `error` that a provider's package or litellm raised. `now`, in Unix seconds, is used to read a
    Retry-After date. `with_files`: the request contains files, which the provider may have refused."""
    chain = list(_chain(error))
    code = _code(chain, with_files)
    retry_after_s = retry_after(chain, now) if code in _RETRYABLE else None
    known = "set api='responses'" if any(_WANTS_RESPONSES.search(_message_of(error)) for error in chain) else ""
    made = failure(model, code, _detail(chain) if content_shown() else known, retry_after_s, secrets)
    refused = code in ("bad_request", "model_not_found") and any(
        _ABOUT_REASONING.search(_message_of(error)) for error in chain
    )
    return replace(made, about_reasoning=refused, reported=limit_in(chain))


def messages_of(error: BaseException) -> list[str]:
    """Return the messages of the error and its causes, as the provider wrote them."""
    return [_message_of(each) for each in _chain(error)]


def is_connection_lost(error: BaseException) -> bool:
    return _code(list(_chain(error))) in ("connection_error", "timeout")


def may_be_billed(error: BaseException) -> bool:
    """Return whether a provider may bill an attempt that `error` ended before its stream began. A provider does not
    bill a request that it refused with an HTTP status, or that never reached it."""
    chain = list(_chain(error))
    if any(_is_named(e, _UNREACHED) for e in chain):
        return False
    foreign = [e for e in chain if not type(e).__module__.startswith("litellm")]
    refused = any(getattr(e, "response", None) is not None for e in foreign)
    return not refused and (
        any(_is_named(e, _TIMEOUTS) for e in chain) or any(_is_named(e, _TRANSPORT) for e in foreign)
    )


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Return `text` without `secrets`, the environment's keys, and anything else that looks like an API key."""
    of_environment = (value for name, value in os.environ.items() if _SECRET_NAME.search(name))
    for secret in (*secrets, *of_environment):
        if len(secret) >= 8:
            text = text.replace(secret, "***")
    return _SECRET.sub("***", text)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and its causes, outermost first. litellm wraps up to four deep."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = getattr(current, "original_exception", None) or current.__cause__ or current.__context__


def _code(chain: list[BaseException], with_files: bool = False) -> str:
    code = _kind(chain)
    if code == "bad_request" and any(_TOO_LONG.search(_message_of(error)) for error in chain):
        return "context_too_long"  # only the message tells it apart
    if with_files and code == "bad_request" and any(_ABOUT_FILE.search(_message_of(error)) for error in chain):
        return InvalidFileError.code
    return code


def _kind(chain: list[BaseException]) -> str:
    foreign = [error for error in chain if not type(error).__module__.startswith("litellm")]
    for error in chain:
        known = _BY_TYPE.get(type(error).__name__) or _BY_BODY_CODE.get(str(getattr(error, "code", None)))
        if known is not None:
            return known
    if (of_aws := _aws_code(chain)) is not None:
        return of_aws
    # The SDK raises its bare base class if there is no credential; litellm calls that a 500.
    if any(type(error).__name__ == "OpenAIError" and type(error).__module__.startswith("openai") for error in chain):
        return "authentication"
    if any(_is_named(error, _NO_CREDENTIALS) for error in chain):
        return "authentication"
    status = next((status for error in chain if (status := _status(error)) is not None), None)
    # litellm's own errors have an invented response.
    if status == 200 or not any(getattr(error, "response", None) is not None for error in foreign):
        if (within := _stream_code(foreign)) is not None:
            return within
        if any(_is_named(error, _TIMEOUTS) for error in chain) and not _is_named(chain[0], _ENDPOINT_UNREACHABLE):
            return "timeout"
        if any(_is_named(error, _TRANSPORT) for error in foreign):
            return "connection_error"
    if status is None:
        return "model_error"
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    return "server_error" if status >= 500 or status == 200 else "bad_request"


def _stream_code(foreign: list[BaseException]) -> str | None:
    """Return the code of an error that the provider sent after it had begun to answer."""
    for error in foreign:
        kind = getattr(error, "type", None)
        if kind in _BY_BODY_TYPE:
            return _BY_BODY_TYPE[kind]
        if type(error).__name__ == "APIError" and getattr(error, "body", None) is not None:
            return "server_error"
    return None


def _aws_code(chain: list[BaseException]) -> str | None:
    for error in chain:
        response = getattr(error, "response", None)
        if isinstance(response, dict) and "Error" in response:
            code = _BY_AWS_CODE.get(str(response["Error"].get("Code", "")).lower())
            if code == "bad_request" and _NO_SUCH_MODEL.search(_message_of(error)):
                return "model_not_found"
            status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode") or 500)
            return code or _BY_STATUS.get(status) or ("server_error" if status >= 500 else "bad_request")
    return None


def _is_named(error: BaseException, names: frozenset[str]) -> bool:
    return any(base.__name__ in names for base in type(error).__mro__)


def _status(error: BaseException) -> int | None:
    if type(error).__name__ == "MidStreamFallbackError":  # a wrapper that always has status 503
        return None
    status = getattr(error, "status_code", None)
    return int(status) if isinstance(status, int) or (isinstance(status, str) and status.isdigit()) else None


def _detail(chain: list[BaseException]) -> str:
    """Return the provider's own words, without the class names and raw bodies around them."""
    text = _message_of(chain[0]) or type(chain[0]).__name__
    if said := _SAID.search(text):
        with contextlib.suppress(ValueError):
            text = str(json.loads(f'"{said.group(1)}"'))
    return _WRAPPING.sub("", text) or text


def _message_of(error: BaseException) -> str:
    response, body = getattr(error, "response", None), getattr(error, "body", None)
    if isinstance(response, dict):  # botocore
        return str(response.get("Error", {}).get("Message") or error)
    inner = body.get("error", body) if isinstance(body, dict) else None
    text = inner.get("message") if isinstance(inner, dict) else None
    return str(text or getattr(error, "message", None) or error)
