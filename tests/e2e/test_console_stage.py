"""The console that a stage serves: sign-in by key and with an issuer, and the servers that the page may connect to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import pytest_asyncio
from tests.support.browser import Watched, axe, browsing, go, shows
from tests.support.cloud_agents.plans import plan, say
from tests.support.offline_cloud import CloudForTests, deployed, until
from tests.support.oidc_issuer import OidcIssuer
from tests.support.sample_files import png

from helix.client import HelixClient

CLIENT, AUDIENCE = "helix-console", "helix-test"
SOON_S = 3600 - 45
"""The time at which a token of one hour is renewed."""
REFUSED = (
    "failed: HTTP Authentication failed; no valid credentials available",
    "/token: Failed to load resource: the server responded with a status of 400 (",
    "response code: 403",
)
"""The errors that Chromium logs for a wrong key, and for a renewal that the issuer refuses."""


@pytest.fixture(scope="module")
def issuer() -> Iterator[OidcIssuer]:
    made = OidcIssuer(CLIENT, AUDIENCE)
    with made.server:
        yield made


@pytest.fixture(scope="module")
def stage(issuer: OidcIssuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CloudForTests]:
    context = {"console": "http", "console_client_id": CLIENT, "auth": "keys,jwt", "jwt_issuer": issuer.url}
    context |= {"jwt_audience": AUDIENCE, "jwks_url": issuer.jwks_url}
    with deployed(tmp_path_factory.mktemp("stage"), context=context) as made:
        issuer.redirects.add(made.cloud.outputs["ConsoleUrl"])
        yield made


@pytest.fixture
def address(stage: CloudForTests, issuer: OidcIssuer) -> str:
    issuer.denies, issuer.renews, issuer.nonce, issuer.token_origin = "", True, "", ""
    return stage.cloud.outputs["ConsoleUrl"]


@pytest_asyncio.fixture
async def browser(stage: CloudForTests, issuer: OidcIssuer) -> AsyncIterator[Watched]:
    """A browser that may request only the page's own server, the stage's socket and files, and the issuer."""
    async with browsing(None, viewport={"width": 1280, "height": 800}) as made:
        yield made
        unexpected = [error for error in made.errors if not any(words in error for words in REFUSED)]
        assert unexpected == [] and issuer.problems == []
        page = stage.cloud.outputs["ConsoleUrl"].removesuffix("index.html")
        allowed = (page, stage.url, f"{issuer.url}/", f"{stage.cloud.outputs['FilesUrl']}/", "blob:")
        assert [url for url in made.requests if not url.startswith(allowed)] == []


async def opened(browser: Watched, address: str, *, clock: bool = False) -> Any:
    """Open the page. With `clock`, the test controls the page's clock."""
    page = await browser.context.new_page()
    if clock:
        await page.clock.install()
    page.on("websocket", lambda socket: browser.requests.append(socket.url))
    await page.goto(address)
    return page


async def says(page: Any, agent: str, text: str) -> None:
    await go(page, f"new/{agent}")
    await page.locator("#composer:not([disabled])").fill(plan(say(text)))
    await page.keyboard.press("Enter")
    await shows(page, text)


async def test_a_key_signs_in_for_one_tab(stage: CloudForTests, browser: Watched, address: str) -> None:
    page = await opened(browser, address)
    form = page.get_by_label("API key")
    await form.fill("helix_wrong")
    await page.get_by_role("button", name="Sign in", exact=True).click()
    await page.get_by_role("alert").get_by_text("The key is not valid here").wait_for()
    await page.evaluate(axe())
    found = await page.evaluate("() => axe.run().then(found => found.violations.map(v => v.id))")
    assert found == []
    await form.fill(stage.key("console-key"))
    await page.keyboard.press("Enter")
    await page.wait_for_selector(".app")
    await says(page, "talker", "By key.")
    await page.get_by_text("stage test · console-key").wait_for()
    await page.reload()
    await shows(page, "By key.")
    async with stage.user("console-key") as client:
        listed: dict[str, Any] = await client.list_sessions()
        assert len(listed["sessions"]) == 1
    other = await opened(browser, address)
    await other.get_by_role("heading", name="Sign in to Helix").wait_for()
    await page.get_by_role("button", name="Sign out").click()
    await page.get_by_role("heading", name="Sign in to Helix").wait_for()
    assert await page.evaluate("() => [sessionStorage.length, localStorage.length]") == [0, 0]


async def test_a_file_goes_to_the_bucket_and_is_shown_from_there(
    stage: CloudForTests, browser: Watched, address: str
) -> None:
    """The page's security policy and the bucket's CORS rule allow it."""
    page = await opened(browser, address)
    await page.get_by_label("API key").fill(stage.key("file-key"))
    await page.keyboard.press("Enter")
    await page.wait_for_selector(".app")
    await go(page, "new/talker")
    await page.locator("#composer:not([disabled])").fill(plan(say("I see a picture.")))
    photo = {"name": "photo.png", "mimeType": "image/png", "buffer": png(8, 6)}
    await page.get_by_label("Files to attach").set_input_files([photo])
    await page.get_by_text("1 file attached.").wait_for(state="attached")
    await page.keyboard.press("Enter")
    await shows(page, "I see a picture.")
    await page.get_by_role("img", name="Image photo.png").wait_for()
    await page.wait_for_function("document.querySelector('.preview img').naturalWidth == 8")
    bucket = stage.cloud.outputs["FilesUrl"]
    assert len([url for url in browser.requests if url.startswith(bucket) and "/blobs/" in url]) == 2, "PUT and GET"
    async with page.expect_download() as downloading:
        await page.get_by_role("button", name="Download photo.png").click()
    found = await downloading.value
    assert found.suggested_filename == "photo.png"
    assert (await found.path()).read_bytes() == png(8, 6)


async def test_the_issuer_signs_in_and_the_token_is_renewed(
    stage: CloudForTests, browser: Watched, issuer: OidcIssuer, address: str
) -> None:
    before = issuer.renewals
    page = await opened(browser, f"{address}#/new/talker", clock=True)
    await page.get_by_role("button", name=f"Continue with {urlsplit(issuer.url).netloc}").click()
    await page.wait_for_selector("#composer")
    assert page.url == f"{address}#/new/talker", "the page that was open, without the code"
    await says(page, "talker", "By token.")
    await page.get_by_text("stage test · ada").wait_for()
    assert issuer.renewals == before
    await page.clock.fast_forward(SOON_S * 1000)
    until(lambda: issuer.renewals > before, "a renewed token", patience_s=20)
    await says(page, "talker", "And again.")
    async with HelixClient(stage.url, issuer.signed(aud=AUDIENCE)) as client:
        listed: dict[str, Any] = await client.list_sessions()
        assert len(listed["sessions"]) == 2
    issuer.renews = False
    await page.clock.fast_forward(SOON_S * 1000)
    await (
        page.get_by_role("alert")
        .get_by_text("Your sign-in has ended. The issuer refuses: the session is over")
        .wait_for()
    )
    await page.get_by_role("button", name="Continue with").click()
    await shows(page, "And again.")


async def test_an_answer_that_this_tab_did_not_ask_for_signs_nobody_in(
    browser: Watched, issuer: OidcIssuer, address: str
) -> None:
    page = await opened(browser, f"{address}?code=stolen&state=guessed")
    await page.get_by_role("alert").get_by_text("This sign-in was not begun in this tab").wait_for()
    assert page.url == address
    issuer.denies = "access_denied"
    await page.get_by_role("button", name="Continue with").click()
    await page.get_by_role("alert").get_by_text("The issuer refuses: access_denied").wait_for()
    assert await page.evaluate("() => sessionStorage.length") == 0


async def test_what_an_issuer_answers_is_checked(browser: Watched, issuer: OidcIssuer, address: str) -> None:
    """The stage checks ID tokens, whose audience is the client itself."""

    async def by_id_token(route: Any) -> None:
        answer = await route.fetch()
        config = await answer.json()
        await route.fulfill(response=answer, json={**config, "oidc": {**config["oidc"], "token": "id_token"}})

    await browser.context.route("**/config.json", by_id_token)
    page = await opened(browser, address)
    sign_in = page.get_by_role("button", name="Continue with")
    issuer.token_origin = "https://tokens.example"
    await sign_in.click()
    await page.get_by_role("alert").get_by_text("add it to the setting console_origins").wait_for()
    issuer.token_origin, issuer.nonce = "", "of another sign-in"
    await sign_in.click()
    await page.get_by_role("alert").get_by_text("The issuer's token is not for this sign-in").wait_for()
    issuer.nonce = ""
    await sign_in.click()
    await page.get_by_text("stage test · ada").wait_for()
    assert await page.evaluate("() => JSON.parse(sessionStorage.getItem('helix-proof')).expiresAt > Date.now() + 3e6")


def test_the_files_are_compressed_and_asked_for_again(stage: CloudForTests, issuer: OidcIssuer, address: str) -> None:
    base, files = address.removesuffix("/index.html"), stage.cloud.emulator.url
    with httpx.Client(trust_env=False, timeout=30) as client:
        moved = client.get(base)
        assert (moved.status_code, str(moved.url.join(moved.headers["location"]))) == (302, address)
        script = client.get(f"{base}/console.js", headers={"accept-encoding": "gzip"})
        assert script.status_code == 200 and script.headers["content-encoding"] == "gzip"
        assert int(script.headers["content-length"]) < 50_000 < len(script.text)
        plain = client.get(f"{base}/console.js", headers={"accept-encoding": "identity"})
        assert plain.text == script.text and "content-encoding" not in plain.headers
        again = client.get(
            f"{base}/console.js", headers={"accept-encoding": "gzip", "if-none-match": script.headers["etag"]}
        )
        assert (again.status_code, again.content) == (304, b"")
        assert plain.headers["etag"] != script.headers["etag"] and script.headers["vary"] == "accept-encoding"
        for path in ("nothing", "..%2fserver.py", "%2e%2e", "console%2fserver.py"):
            assert client.get(f"{base}/{path}").status_code in (403, 404)
        for path in ("index.html", "console.css", "config.json", "icon.svg", "nothing"):
            answer = client.get(f"{base}/{path}")
            policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
            assert policy["connect-src"] == f"'self' {stage.url} {issuer.url} {files}"
            assert policy["img-src"] == f"'self' blob: {files}"
            assert policy["default-src"] == policy["frame-ancestors"] == "'none'" and "unsafe" not in str(policy)
            assert answer.headers["strict-transport-security"] == "max-age=31536000"
        assert client.get(f"{base}/config.json").json() == {
            "url": stage.url,
            "files": files,
            "place": "stage test",
            "sign_in": ["key", "oidc"],
            "oidc": {
                "issuer": issuer.url,
                "client_id": CLIENT,
                "scope": "openid",
                "audience": AUDIENCE,
                "token": "access_token",
                "origins": [],
            },
        }
