"""`headwater token`: the first access token, offline; the others, through a running server.

`init` opens the data folder itself, so no server may run on it. `issue`, `list` and `revoke` are
requests of the S2 API, with a token that permits them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from http.client import HTTPException
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

from headwater.cli.main import EXIT_FAILED, EXIT_USAGE, fail, why_missing
from headwater.cli.trust import trusted

if TYPE_CHECKING:
    from headwater.storage.store import Store

URL_VARIABLE = "HEADWATER_URL"
TOKEN_VARIABLE = "HEADWATER_TOKEN"
DEFAULT_URL = "http://127.0.0.1:4437"
TIMEOUT_S = 30.0
PAGE = 1000


class Failed(Exception):
    """The one line that says why."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = f"{parser.prog} init|issue|list|revoke [FLAG ...]"
    actions = parser.add_subparsers(
        dest="action", required=True, metavar="ACTION", prog=parser.prog
    )
    init = actions.add_parser("init", help="make a token that permits everything, offline")
    init.add_argument("--data-dir", metavar="DIR", required=True, help="of a stopped server")
    init.add_argument("--id", default="root", help="of the new token (default: root)")
    issue = actions.add_parser("issue", help="issue a token; it is printed once")
    issue.add_argument("id")
    for kind in ("basins", "streams", "access-tokens"):
        about = f"which {kind}: a name, a prefix and *, or * for all (default: none)"
        issue.add_argument(f"--{kind}", metavar="NAME", help=about)
    issue.add_argument(
        "--groups", metavar="GROUP=rw,...", default="", help="account, basin, stream: r, w or rw"
    )
    issue.add_argument("--ops", metavar="OP,...", default="", help="single operations")
    issue.add_argument("--expires-at", metavar="TIME", help="such as 2030-01-31T12:00:00Z")
    issue.add_argument("--auto-prefix-streams", action="store_true")
    listed = actions.add_parser("list", help="list tokens, one line of JSON each")
    listed.add_argument("--prefix", default="")
    revoke = actions.add_parser("revoke", help="make a token useless")
    revoke.add_argument("id")
    for online in (issue, listed, revoke):
        online.add_argument("--url", help=f"of the server (default: {URL_VARIABLE})")
        online.add_argument("--token", help=f"to ask with (default: {TOKEN_VARIABLE})")


def run(arguments: argparse.Namespace) -> int:
    actions = {"init": _init, "issue": _issue, "list": _list, "revoke": _revoke}
    try:
        actions[arguments.action](arguments)
    except Failed as error:
        print(f"headwater: {error}", file=sys.stderr, flush=True)
        return EXIT_FAILED
    except ValueError as error:
        print(f"headwater: {error}", file=sys.stderr, flush=True)
        return EXIT_USAGE
    except ImportError as error:
        return fail(EXIT_FAILED, why_missing(error))
    return 0


# -- offline


def _init(arguments: argparse.Namespace) -> None:
    from headwater.server.data import open_store
    from headwater.server.listening import StartFailed
    from headwater.server.settings import Settings

    try:
        store = open_store(Settings(data_dir=arguments.data_dir))
    except StartFailed as error:
        raise Failed(str(error)) from error
    print(asyncio.run(_make_root(store, arguments.id)))


async def _make_root(store: Store, token_id: str) -> str:
    """An engine for a moment: what it writes is as durable as anything a server writes."""
    from headwater.core.access import EVERYTHING
    from headwater.core.errors import HeadwaterError
    from headwater.core.pending import Pending
    from headwater.engine.clock import SystemClock
    from headwater.engine.engine import Engine
    from headwater.engine.tokens import Asked, Tokens, check_id

    loop = asyncio.get_running_loop()

    async def wait_for(pending: Pending[Any]) -> Any:
        done: asyncio.Future[Any] = loop.create_future()
        pending.deliver(done.set_result)
        return await done

    engine = Engine(store, SystemClock(loop), loop)
    try:
        outcome = await wait_for(Tokens(engine).issue(Asked(check_id(token_id), EVERYTHING), None))
    except HeadwaterError as error:
        outcome = error
    await wait_for(engine.close())
    if isinstance(outcome, Exception):
        raise Failed(str(outcome)) from outcome
    return str(outcome)


# -- through a server


def _issue(arguments: argparse.Namespace) -> None:
    scope: dict[str, Any] = {
        kind: _parse_names(given)
        for kind in ("basins", "streams", "access_tokens")
        if (given := getattr(arguments, kind)) is not None
    }
    if arguments.groups:
        scope["op_groups"] = _parse_groups(arguments.groups)
    if arguments.ops:
        scope["ops"] = arguments.ops.split(",")
    body = {
        "id": arguments.id,
        "scope": scope,
        "expires_at": arguments.expires_at,
        "auto_prefix_streams": arguments.auto_prefix_streams,
    }
    print(_ask(arguments, "POST", "", body)["access_token"])


def _list(arguments: argparse.Namespace) -> None:
    start_after = ""
    while True:
        query = {"prefix": arguments.prefix, "start_after": start_after, "limit": PAGE}
        page = _ask(arguments, "GET", f"?{urlencode(query)}")
        for token in page["access_tokens"]:
            print(json.dumps(token))
            start_after = token["id"]
        if not page["has_more"]:
            return


def _revoke(arguments: argparse.Namespace) -> None:
    _ask(arguments, "DELETE", f"/{quote(arguments.id, safe='')}")


def _parse_names(text: str) -> dict[str, str]:
    return {"prefix": text[:-1]} if text.endswith("*") else {"exact": text}


def _parse_groups(text: str) -> dict[str, dict[str, bool]]:
    found = {}
    for part in text.split(","):
        group, _, letters = part.partition("=")
        if group not in ("account", "basin", "stream") or letters not in ("r", "w", "rw"):
            raise ValueError(f"--groups is a list such as basin=r,stream=rw. received={part!r}")
        found[group] = {"read": "r" in letters, "write": "w" in letters}
    return found


def _ask(
    arguments: argparse.Namespace, method: str, tail: str, body: object | None = None
) -> dict[str, Any]:
    url = arguments.url or os.environ.get(URL_VARIABLE) or DEFAULT_URL
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"the URL of a server begins with http:// or https://. received={url!r}")
    token = arguments.token or os.environ.get(TOKEN_VARIABLE)
    request = Request(f"{url.rstrip('/')}/v1/access-tokens{tail}", method=method)
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    if body is not None:
        request.add_header("Content-Type", "application/json")
        request.data = json.dumps(body).encode()
    try:
        with urlopen(request, timeout=TIMEOUT_S, context=trusted()) as answer:
            content = answer.read()
    except HTTPError as error:
        with error:
            raise Failed(f"{error.code}: {_reason(error.read())}") from None
    except (OSError, HTTPException) as error:
        reason = error.reason if isinstance(error, URLError) else error
        raise Failed(f"cannot reach {url}: {str(reason).strip()}") from None
    try:
        found: dict[str, Any] = json.loads(content) if content else {}
    except ValueError:
        raise Failed(f"what answers at {url} is not Headwater") from None
    return found


def _reason(body: bytes) -> str:
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace")[:200]
