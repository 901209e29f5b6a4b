"""An OpenAI-compatible server: where it listens, what a request to it looks like, and how long one waits.

The one idea: one place knows the protocol's way of asking; `client.py` sends it and `event_stream.py` reads the answer.
An API key is sent to that server only: it is not shown, and no redirect is followed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from http.cookiejar import CookieJar, DefaultCookiePolicy
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import httpx

from course_lib.caches.contract import real


@dataclass(frozen=True)
class Timeouts:
    """How long a client waits, in seconds: for a connection, for the first token and for the whole answer.

    All begin when it asks, not when it should have. ValueError for what is no time above 0.
    """

    connect_s: float = 10.0
    first_token_s: float = 120.0
    whole_s: float = 120.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            real(value, f"{name}, a number of seconds,", above=0)


@dataclass(frozen=True)
class Endpoint:
    """Where to ask, for which model, and how. `url` may end in /v1 or not; `usage`: ask the server to count tokens."""

    url: str
    model: str
    chat: bool = True
    api_key: str | None = field(default=None, repr=False)
    timeouts: Timeouts = Timeouts()
    usage: bool = True

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            right = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0)
        except ValueError:  # a port that is none
            right = False
        if right:
            try:
                httpx.URL(self.url)
            except httpx.InvalidURL:  # an odd name of a host
                right = False
        if not right or parts.query or parts.fragment or parts.username or not self.url.isprintable():
            shown = "this" if "@" in self.url else repr(self.url)  # a password stands before an @
            raise ValueError(f"{shown} is no address of a server: give one such as http://127.0.0.1:8000")
        if not self.model.strip():
            raise ValueError("the name of the model is empty: give the one that the server knows it by")
        if self.api_key is not None and not (self.api_key.isascii() and self.api_key.isprintable()):
            raise ValueError("the API key holds characters that no header can carry")

    @property
    def address(self) -> str:
        """Where requests are posted."""
        base = self.url.rstrip("/").removesuffix("/chat/completions").removesuffix("/completions")
        base = base if base.endswith("/v1") else f"{base}/v1"
        return f"{base}/chat/completions" if self.chat else f"{base}/completions"

    @property
    def on_this_machine(self) -> bool:
        """Then no proxy is asked, whatever the environment says."""
        host = urlsplit(self.url).hostname or ""
        try:
            return host == "localhost" or ip_address(host).is_loopback or ip_address(host).is_unspecified
        except ValueError:
            return False

    def body(self, text: str, new_tokens: int) -> dict[str, Any]:
        """The request: greedy, so that the lengths of answers do not change from run to run, and streamed."""
        asked: dict[str, Any] = {"model": self.model, "stream": True, "temperature": 0, "max_tokens": new_tokens}
        asked |= {"messages": [{"role": "user", "content": text}]} if self.chat else {"prompt": text}
        return asked | ({"stream_options": {"include_usage": True}} if self.usage else {})

    def connect(self) -> httpx.AsyncClient:
        """A client that opens a connection for each request, as many as there are, and follows nobody elsewhere.

        It keeps no cookie: visitors have nothing to do with each other. ValueError for a proxy that cannot be used.
        """
        key = {} if self.api_key is None else {"Authorization": f"Bearer {self.api_key}"}
        try:
            return httpx.AsyncClient(
                headers={"Accept": "text/event-stream", "Accept-Encoding": "identity", **key},
                timeout=httpx.Timeout(None, connect=self.timeouts.connect_s),
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
                trust_env=not self.on_this_machine,
                cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
            )
        except (ImportError, ValueError) as error:
            proxies = "HTTP_PROXY, HTTPS_PROXY and ALL_PROXY"
            raise ValueError(f"the proxy of this machine cannot be used ({error}): look at {proxies}") from None
