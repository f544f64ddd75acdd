"""SVG written as text: elements, labels and the file around them."""

from collections.abc import Iterable

Attribute = str | float


def element(name: str, content: str = "", /, **attributes: Attribute) -> str:
    """One element around this markup.

    Floats are written with one decimal. `class_` is written `class`, and any other underscore as a hyphen.
    """
    head = name + "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_written(value)}"' for key, value in attributes.items()
    )
    return f"<{head}>{content}</{name}>" if content else f"<{head}/>"


def document(parts: Iterable[str], **attributes: Attribute) -> str:
    """A whole SVG file with one part per line."""
    content = "".join(f"{part}\n" for part in parts)
    return element("svg", f"\n{content}", xmlns="http://www.w3.org/2000/svg", **attributes) + "\n"


def _written(value: Attribute) -> str:
    return f"{value:.1f}" if isinstance(value, float) else str(value)
