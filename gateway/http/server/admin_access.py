"""Asks for a key, a session or a trusted proxy's word at the admin port, and hardens its answers."""

from collections.abc import Awaitable, Callable
from html import escape
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Middleware

from gateway.auth.admin_access import SESSION_S, AdminRules, AdminSessions, same_origin
from gateway.auth.failure_limiter import AuthFailureLimiter
from gateway.core.clock import Clock
from gateway.http.server.page import HEADERS
from gateway.telemetry.logging import logger

OPEN_PATHS: Final = frozenset({"/metrics", "/livez", "/readyz", "/login"})
"""Answered without a key: numbers and probes for machines, and the way to sign in."""
_FILES: Final = "/page/"  # the page's style and script, which are the same everywhere
_CHAT: Final = "/try"  # the Authorization of a POST to it is a client's
COOKIE: Final = "sluice_admin"
WHO: Final = web.RequestKey("who", str)
_FAILURES_PER_MINUTE: Final = 10
_MAX_FORM: Final = 4096
_READS: Final = ("GET", "HEAD")
_SEND_KEY: Final = "send one of admin.keys as `Authorization: Bearer KEY`, or sign in at /login"

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class AdminAccess:
    """The door of the admin port: a middleware, and the routes to sign in and out."""

    def __init__(self, rules: Callable[[], AdminRules], secret: bytes, clock: Clock) -> None:
        """`rules` returns those of the current config; `secret` is random and belongs to this process."""
        self._rules = rules
        self._sessions = AdminSessions(secret)
        self._clock = clock
        self._failures = AuthFailureLimiter(_FAILURES_PER_MINUTE)

    def add_to(self, app: web.Application) -> None:
        """Guard this application."""
        app.middlewares.append(self.middleware)
        app.router.add_get("/login", self._form)
        app.router.add_post("/login", self._sign_in)
        app.router.add_post("/logout", self._sign_out)

    @property
    def middleware(self) -> Middleware:
        """Aiohttp's middleware."""

        @web.middleware
        async def guard(request: web.Request, handler: _Handler) -> web.StreamResponse:
            refused = self._refused(request)
            return await handler(request) if refused is None else refused

        return guard

    def _refused(self, request: web.Request) -> web.Response | None:
        rules = self._rules()
        if request.path in OPEN_PATHS and request.method in _READS:
            return None
        headers = request.headers
        if request.method not in _READS and not same_origin(
            request.host, headers.get("Origin"), headers.get("Sec-Fetch-Site")
        ):
            return _text(403, "another site's page may not act here")
        if rules.open:
            if not rules.knows_host(request.host):
                return _text(403, f"{request.host[:100]} is no name of this machine; to use one, set admin.keys")
            request[WHO] = "loopback"
            return None
        if request.path == "/login" or (request.path.startswith(_FILES) and request.method in _READS):
            return None
        return self._identify(request, rules)

    def _identify(self, request: web.Request, rules: AdminRules) -> web.Response | None:
        """Set who asks, or refuse."""
        header = rules.trusted_header
        vouched = rules.vouched(request.remote, request.headers.get(header) if header is not None else None)
        if vouched is not None:
            request[WHO] = f"{header}: {vouched}"
            return None
        scheme, _, key = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer" and (request.path != _CHAT or request.method in _READS):
            number = rules.key_number(key.strip())
            if number is None:
                return self._wrong_key(request)
        else:
            session = request.cookies.get(COOKIE)
            number = (session and self._sessions.key_number(session, rules.digests, self._clock())) or None
            if number is None:
                return _no_key(request)
        request[WHO] = f"admin.keys[{number - 1}]"
        return None

    def _wrong_key(self, request: web.Request) -> web.Response:
        logger.warning("admin key refused", extra={"audit": "admin_login", "remote": request.remote})
        limited = self._failures.reject(request.remote or "", self._clock())
        if limited is None:
            return _text(401, f"wrong key; {_SEND_KEY}", {"WWW-Authenticate": "Bearer"})
        return _text(429, "too many wrong keys", {"Retry-After": str(int(limited.retry_after or 1) + 1)})

    async def _form(self, request: web.Request) -> web.Response:
        return _login_page("", 200)

    async def _sign_in(self, request: web.Request) -> web.Response:
        if (request.content_length or _MAX_FORM + 1) > _MAX_FORM:
            return _text(413, "too long")
        rules = self._rules()
        form = await request.post()
        key = form.get("key", "")
        number = rules.key_number(key.strip()) if isinstance(key, str) else None
        if number is None:
            refused = self._wrong_key(request)
            return refused if refused.status == 429 else _login_page("Wrong key. 키가 맞지 않습니다.", 401)
        who = {"audit": "admin_login", "by": f"admin.keys[{number - 1}]", "remote": request.remote}
        logger.info("signed in to the admin port", extra=who)
        answer = web.Response(status=303, headers={"Location": "/"})
        answer.set_cookie(
            COOKIE,
            self._sessions.issue(rules.digests[number - 1], self._clock()),
            max_age=int(SESSION_S),
            path="/",
            httponly=True,
            samesite="Strict",
            # A proxy that speaks https for this port shows in the browser's own word only.
            secure=request.secure or request.headers.get("Origin", "").startswith("https:"),
        )
        return answer

    async def _sign_out(self, request: web.Request) -> web.Response:
        answer = web.Response(status=303, headers={"Location": "/login"})
        answer.del_cookie(COOKIE, path="/", httponly=True, samesite="Strict")
        return answer


async def harden(request: web.Request, response: web.StreamResponse) -> None:
    """An `on_response_prepare` signal: no answer can be framed, sniffed, kept, or load anything foreign."""
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)


def _no_key(request: web.Request) -> web.Response:
    if request.method == "GET" and "text/html" in request.headers.get("Accept", ""):
        return web.Response(status=303, headers={"Location": "/login"})
    return _text(401, _SEND_KEY, {"WWW-Authenticate": "Bearer"})


def _text(status: int, message: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(status=status, text=f"{status}: {message}\n", headers=headers)


def _login_page(problem: str, status: int) -> web.Response:
    return web.Response(status=status, content_type="text/html", text=_LOGIN.format(problem=escape(problem)))


_LOGIN: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Sluice: sign in</title>
<link rel="stylesheet" href="/page/page.css">
<link rel="icon" href="/page/icon.svg">
<main>
<h1>Sluice</h1>
<form method="post" action="/login">
<p><label for="key">Admin key (<code>admin.keys</code>) · <span lang="ko">관리 키</span></label></p>
<p><input id="key" name="key" type="password" autocomplete="current-password" required autofocus>
<button>Sign in · <span lang="ko">로그인</span></button></p>
<p role="alert">{problem}</p>
</form>
</main>
</html>
"""
