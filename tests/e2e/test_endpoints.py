"""The deployed app's health over HTTP. Everyone may read the status, and the holder of the token may read the figures."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.e2e.cloud_executor import AdminApplication
from tests.support.cloud_agents.plans import plan, say
from tests.support.offline_cloud import CloudForTests, until

from helix.adapters.system import SystemIds
from helix.fleet.metrics_token import TOKEN, make_token
from helix.ports.state_store import Delete


@pytest.fixture
def http(cloud: CloudForTests) -> Iterator[httpx.Client]:
    base = cloud.cloud.health_url.removesuffix("/health")
    with httpx.Client(base_url=base, trust_env=False, timeout=30) as client:
        yield client


def token(cloud: CloudForTests) -> str:
    if "MetricsSecretArn" not in (known := cloud.cloud.outputs):
        return renewed(cloud)
    arn = known["MetricsSecretArn"]
    text: str = cloud.aws("secretsmanager").get_secret_value(SecretId=arn)["SecretString"]
    return text


def renewed(cloud: CloudForTests) -> str:
    """Renew the token of a stage without a secret, as docs/guide/deploy.md says. It is shown once."""
    store = AdminApplication(cloud).store

    async def make() -> str:
        await store.transact("renew", [Delete(TOKEN)])
        token = await make_token(store, SystemIds())
        assert token is not None
        return token

    with ThreadPoolExecutor(1) as elsewhere:  # some callers run in an event loop
        return elsewhere.submit(asyncio.run, make()).result()


def counters(client: httpx.Client, bearer: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Return the samples of each counter as Prometheus would read them."""
    page = client.get("/metrics", headers={"Authorization": f"Bearer {bearer}"})
    assert page.status_code == 200 and page.headers["content-type"].startswith("text/plain")
    families = list(text_string_to_metric_families(page.text))
    assert families
    samples = [sample for family in families if family.type == "counter" for sample in family.samples]
    return {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in samples}


def test_probes_are_answered_without_credentials(cloud: CloudForTests, http: httpx.Client) -> None:
    """The stage is ready after the first scheduled sweep."""
    assert http.get("/live").status_code == 200
    cloud.cloud.tick()
    until(lambda: http.get("/ready").status_code == 200, "readiness")
    page = http.get("/health")
    own = {name: told for name, told in page.json()["checks"].items() if not name.startswith("agent ")}
    assert page.status_code == 200 and len(own) >= 4
    assert {told["status"] for told in own.values()} == {"healthy"}, "other tests check the health of agents"
    assert http.get("/nothing").status_code == 404


def test_whoever_has_no_token_learns_no_figures(cloud: CloudForTests, http: httpx.Client) -> None:
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Bearer {cloud.key('alice')}"}):
        page = http.get("/metrics", headers=headers)
        assert page.status_code == 401 and "helix_" not in page.text
    open_page, with_token = (
        http.get("/health"),
        http.get("/health", headers={"Authorization": f"Bearer {token(cloud)}"}),
    )
    assert "message" not in open_page.text and "message" in with_token.text


async def test_counters_count_every_run_and_never_fall(cloud: CloudForTests, http: httpx.Client) -> None:
    """The counters are right whichever process answers, and also after all processes have ended."""
    bearer = token(cloud)
    before = counters(http, bearer)
    async with cloud.user("figures") as client:
        for _ in range(2):
            handle = await client.run("talker", plan(say("Counted.")))
            assert (await handle.result(30)).status == "completed"

    def grown() -> dict[str, float]:
        """Return the increase of each counter, and check that none decreased."""
        now, more = counters(http, bearer), dict[str, float]()
        for key, value in now.items():
            assert value >= before.get(key, 0.0), key
            more[key[0]] = more.get(key[0], 0.0) + value - before.get(key, 0.0)
        assert before.keys() <= now.keys()
        return more

    until(lambda: grown().get("helix_requests_total") == 2, "two more runs")
    more = grown()
    cloud.cloud.retire_workers()
    assert grown() == more, "no process holds a count"
    assert more["helix_llm_requests_total"] == 2 and more["helix_llm_tokens_total"] > 0
