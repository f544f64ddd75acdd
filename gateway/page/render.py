"""Templates into HTML. Jinja escapes every value, so whatever a client or a config calls itself stays text."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from gateway.inspector.call_record import CallSummary, Step
from gateway.page.texts import LANGUAGES, Words

SCREENS: Final[Sequence[tuple[str, str]]] = (
    ("overview", "/"),
    ("upstreams", "/upstreams"),
    ("models", "/models"),
    ("keys", "/keys"),
    ("batches", "/batches"),
    ("calls", "/calls"),
    ("try", "/try"),
)
_SPECIAL: Final = {"calls": "calls.html", "try": "try.html"}
_WIDTH: Final = 1000  # of a bar


class Place(Mapping[str, str]):
    """A screen's address: its path, its parameters, and the language if the address names one."""

    def __init__(self, path: str, query: Mapping[str, str], spoken: str) -> None:
        """`spoken` is the browser's language."""
        self.path = path
        self.query = {name: value for name, value in query.items() if name not in ("lang", "part")}
        self.lang = query["lang"] if query.get("lang") in LANGUAGES else ""
        self.words = Words(self.lang or spoken)

    def __getitem__(self, name: str) -> str:
        return self.query[name]

    def __iter__(self) -> Any:
        return iter(self.query)

    def __len__(self) -> int:
        return len(self.query)

    def url(self, *, lang: str | None = None, **parameters: str) -> str:
        """The same screen with other parameters."""
        lang = self.lang if lang is None else lang
        pairs = {name: value for name, value in {**self.query, **parameters, "lang": lang}.items() if value}
        return self.path + (f"?{urlencode(pairs)}" if pairs else "")

    def events(self) -> str:
        """The address of the stream that tells when the screen has changed."""
        named = {"lang": self.lang} if self.lang else {}
        return "/events?" + urlencode({**self.query, **named, "screen": self.path})


def screen(name: str, place: Place, context: Mapping[str, Any]) -> str:
    """The changing part of a screen."""
    return str(_template(f"screen_{name}.html").render(_common(place), **context))


def page(name: str, place: Place, context: Mapping[str, Any]) -> str:
    """The whole page."""
    other = next(language for language in LANGUAGES if language != place.words.language)
    title = "calls" if name == "call" else name
    template = _template(_SPECIAL.get(name, "page.html"))
    html = template.render(
        _common(place),
        title="call" if name == "call" else name,
        screen=title,
        screen_file=name,
        screens=[one for one in SCREENS if context["has_batches"] or one[0] != "batches"],
        events="" if name == "try" else place.events(),
        other_language=place.url(lang=other),
        **context,
    )
    return str(html)


def _common(place: Place) -> dict[str, Any]:
    lang = f"lang={place.lang}" if place.lang else ""
    return {"w": place.words, "q": lang and f"?{lang}", "amp": lang and f"&{lang}", "lang": place.lang}


@cache
def _template(name: str) -> Template:
    return _environment().get_template(name)


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("gateway.page"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    made.filters |= {
        "ms": _ms,
        "number": _number,
        "rate": _rate,
        "seconds": _seconds,
        "score": _score,
        "short": _short,
        "time": _time,
        "tone": _tone,
        "usd": _usd,
        "bar_start": _bar_start,
        "bar_width": _bar_width,
    }
    return made


def _ms(value: float) -> str:
    if value >= 10_000:
        return f"{value / 1000:,.1f} s"
    return f"{value:,.1f} ms" if value >= 10 else f"{value:,.2f} ms"


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:,.0f}"


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:,.2f}" if value < 100 else f"{value:,.0f}"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value * 1000:,.0f} ms" if value < 10 else f"{value:,.1f} s"


def _score(value: float) -> str:
    return f"{value:.6f}".rstrip("0").rstrip(".")


def _usd(value: float) -> str:
    return f"{value:,.4f}" if value < 100 else f"{value:,.2f}"


def _short(id: str) -> str:
    return id if len(id) <= 24 else f"{id[:12]}…{id[-8:]}"


def _time(at: str) -> str:
    return at[5:19].replace("T", " ")  # without the year


def _tone(call: CallSummary) -> str:
    if call.live or call.outcome == "ok":
        return "good"
    return "warn" if call.outcome in ("client_error", "limited", "client_gone") else "bad"


def _bar_start(step: Step, total: float) -> str:
    return f"{min(_WIDTH - 3, step.start_ms / total * _WIDTH):.1f}"


def _bar_width(step: Step, total: float) -> str:
    return f"{max(3.0, (step.end_ms - step.start_ms) / total * _WIDTH):.1f}"
