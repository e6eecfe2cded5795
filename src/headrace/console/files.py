"""The console's own files, served from memory.

Their addresses carry a version made of their contents, so a browser keeps them for good, and a new release is a new
address. The style is part of the page, which is painted without waiting for another request; the content security
policy allows it by its hash. So are the visitor's first values, as a block of data that no browser executes.
"""

from __future__ import annotations

import base64
import hashlib
from http import HTTPStatus
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

_ROOT: Final = Path(__file__).parent / "static"
_TYPES: Final = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".html": "text/html"}
_FOR_GOOD: Final = "public, max-age=31536000, immutable"
_ASK_AGAIN: Final = "no-cache"
_NEVER: Final = "no-store"
_FIRST: Final = b'<script type="application/json" id="first">{}</script>'
_STYLE_LINK: Final = b'<link rel="stylesheet" href="/static/style.css">'


class PageFiles:
    """Path -> content, as it was when the console started."""

    def __init__(self) -> None:
        found = {str(path.relative_to(_ROOT)): path.read_bytes() for path in _ROOT.rglob("*.*")}
        page, style = found.pop("index.html"), found.pop("style.css")
        self._files = found
        self.style_hash = f"sha256-{base64.b64encode(hashlib.sha256(style).digest()).decode()}"
        """As a content security policy names it."""
        page = page.replace(_STYLE_LINK, b"<style>" + style + b"</style>")
        digest = hashlib.sha256(page)
        for name in sorted(found):
            digest.update(name.encode() + found[name])
        self.version = digest.hexdigest()[:12]
        self._page = page.replace(b'"/static/', f'"/static/{self.version}/'.encode())

    def page(self, first: bytes) -> Response:
        """The one page, with a visitor's first values as JSON; its addresses change with each release."""
        data = first.replace(b"<", b"\\u003c")  # nothing in it can end the block
        page = self._page.replace(_FIRST, _FIRST.replace(b"{}", data))
        return Response(page, headers={"Cache-Control": _NEVER}, media_type=_TYPES[".html"])

    async def file(self, request: Request) -> Response:
        """A file under its version; a tab that was opened before an upgrade asks for another one, and gets this one."""
        version, _, name = request.path_params["address"].partition("/")
        if (content := self._files.get(name)) is None:
            return Response(status_code=HTTPStatus.NOT_FOUND)
        kept = _FOR_GOOD if version == self.version else _ASK_AGAIN
        return Response(content, headers={"Cache-Control": kept}, media_type=_TYPES[Path(name).suffix])
