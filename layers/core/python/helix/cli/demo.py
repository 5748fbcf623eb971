"""`helix demo`: one question through the deployed app, offline, and what the run left in it."""

from __future__ import annotations

from helix.adapters.system import SystemClock, SystemIds
from helix.cli import remote
from helix.cli.dev import USER, DevOptions, make_cloud, require_local, say_if_slow
from helix.cli.refusal import RefusedError

QUESTION = "How do I return something that arrived damaged?"
SETTLED_S = 10.0


def demo(options: DevOptions, agent: str | None, question: str) -> int:
    """The exit code of the run. State is kept apart from that of `helix dev`."""
    require_local()
    from helix.local.project import find_project
    from helix.local.story import read_story
    from helix.local.telling import lines_of

    root, clock = find_project(options.project), SystemClock()
    cloud, choice, _ = make_cloud(options, root, aside="demo")
    if not cloud.agents:
        raise RefusedError("the project registers no agents: see layers/agents/python/agents")
    say_if_slow(cloud)
    begun = clock.now()
    with cloud:
        key = cloud.create_key(USER, name="helix demo")
        cloud.warm()
        print(f"Helix offline: the deployed app on this machine, up in {clock.now() - begun:.1f} s\n", flush=True)
        session_id, asked = f"{USER}:{SystemIds().new('demo')}", clock.now()
        there = remote.RemoteOptions(agent or cloud.agents[0], cloud.url, key, choice=choice)
        code = remote.run(there, question or QUESTION, session_id, hint=False)
        cloud.settle(SETTLED_S)
        print("What AWS itself tells about it, asked through its APIs:\n")
        for line in lines_of(read_story(cloud, session_id, asked)):
            print(f"  {line}" if line else "")
    return code
