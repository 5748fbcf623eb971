"""Planted faults: one-line mutations in all folders of the package. `make mutants` shows which of them the tests catch.

Each fault is a mistake that a change could make, such as a dropped condition, an off-by-one, a swapped branch or a missing
effect. `old` and `new` are whole lines without their indentation. `tests/unit/test_mutants.py` checks each `old`.
"""

from __future__ import annotations

from tests.mutants.fault import Fault

PEOPLE = ["tests/properties/test_people.py"]


def _unit(*names: str) -> list[str]:
    return [f"tests/unit/test_{name}.py" for name in names]


def _runs(*names: str) -> list[str]:
    return [f"tests/integration/test_{name}.py" for name in names]


def _contracts(*names: str) -> list[str]:
    return [f"tests/contracts/test_{name}.py" for name in names]


FAULTS = (
    # --- core
    Fault(
        "core: a closed attempt opens again",
        "core/sequencer.py",
        "if mine < current or (mine == current and not session.open):",
        "if mine < current:",
        [*_unit("sequencer"), "tests/properties/test_sequencer_properties.py"],
    ),
    Fault(
        "core: a call that waits for a ruling is closed as not executed",
        "core/claim_plan.py",
        'begun = row is not None and (row.state == "claimed" or row.ask in ("unknown", "elsewhere") or row.is_unjudged)',
        'begun = row is not None and (row.state == "claimed" or row.is_unjudged)',
        [*_unit("closing"), *_runs("resume", "answers", "answers_again")],
    ),
    Fault(
        "core: a failed finish_with tool ends the run",
        "core/folding.py",
        'if tool is not None and tool.finish_with and row.success and row.by in ("tool", "answer"):',
        'if tool is not None and tool.finish_with and row.by in ("tool", "answer"):',
        _runs("outputs", "failing_tools", "run"),
    ),
    Fault(
        "core: a lease of a clock that was set back holds",
        "core/claim_plan.py",
        "return session.lease_expires < now or now + CLOCK_SKEW_S < session.updated_at <= session.lease_expires",
        "return session.lease_expires < now",
        [*_unit("lapsed_leases"), *_runs("far_clocks")],
    ),
    # --- ports
    Fault(
        "ports: below takes its bound in",
        "ports/state_store.py",
        "return met and all(value.get(name) is not None and value[name] < bound for name, bound in self.below.items())",
        "return met and all(value.get(name) is not None and value[name] <= bound for name, bound in self.below.items())",
        _contracts("memory", "sqlite"),
    ),
    # --- services
    Fault(
        "services: a repeated request key overwrites the first run's",
        "services/request_keys.py",
        "return Put(request_key(key), value, ABSENT)",
        "return Put(request_key(key), value)",
        _runs("request_keys"),
    ),
    Fault(
        "services: a silent worker's death is not counted",
        "services/work_queue.py",
        'deaths = value["deaths"] + (1 if lapsed else 0)',
        'deaths = value["deaths"]',
        [*_contracts("work_queue"), "tests/fleet/test_worker.py"],
    ),
    # --- engine
    Fault(
        "engine/claims: a heartbeat does not see that its run was aborted",
        "engine/claims/liveness.py",
        "if now is None or now.run_id != run.run_id or now.aborted:",
        "if now is None or now.run_id != run.run_id:",
        _runs("held_claims", "interrupts", "aborts_at_rest", "sub_agent_stops"),
    ),
    Fault(
        "engine/claims: an answer is given to a call of an aborted sub-agent",
        "engine/claims/confirm.py",
        "rows = None if current.aborted else await engine.history.open_rows(current)",
        "rows = await engine.history.open_rows(current)",
        _runs("answers", "answers_again", "sub_agent_approvals", "aborts_at_rest"),
    ),
    Fault(
        "engine/steps: a live attempt of another worker is taken over",
        "engine/steps/buy.py",
        "if held.run_id == session.run_id and held.deadline >= run.now() and not run.owns(session):",
        "if held.run_id == session.run_id and held.deadline < run.now() and not run.owns(session):",
        _runs("ledger", "deliveries", "held_claims"),
    ),
    Fault(
        "engine/steps: the answer is staged before its chunks are on the log",
        "engine/steps/buy.py",
        "await run.stream.flush()  # 8: the log acknowledges all chunks before the answer is staged",
        "# 8: the log acknowledges all chunks before the answer is staged",
        _runs("deliveries", "crash_sweep", "streams"),
    ),
    Fault(
        "engine/calls: a holder starts a tool after its deadline",
        "engine/calls/tool.py",
        "return run.delivery.may_act(now) and now < deadline - run.engine.settings.margin_s",
        "return run.delivery.may_act(now)",
        [*_unit("protocol_regressions"), *_runs("held_claims", "deliveries")],
    ),
    Fault(
        "engine/calls: a skip tool is claimed before it begins",
        "engine/calls/tool.py",
        'return run.engine.placement.executes_tool(run.agent, tool) and (tool is None or tool.on_unknown == "retry")',
        "return run.engine.placement.executes_tool(run.agent, tool)",
        _runs("deliveries", "failing_tools", "packed_crashes"),
    ),
    Fault(
        "engine/calls: a question is judged as a result",
        "engine/calls/tool.py",
        "if run.agent.guards and outcome.questions is None and not outcome.elsewhere:",
        "if run.agent.guards and not outcome.elsewhere:",
        PEOPLE,
    ),
    Fault(
        "engine/claims: an answer to an earlier round answers the next question",
        "engine/claims/confirm.py",
        "return confirmation.round in (None, row.claim)",
        "return confirmation.round in (None, row.claim, row.claim - 1)",
        PEOPLE,
    ),
    Fault(
        "engine/claims: a call of which a token was taken is ended by any token",
        "core/elsewhere.py",
        "return sum(hmac.compare_digest(given, known) for known in self.hashes) > 0",
        "return sum(hmac.compare_digest(given, known) for known in self.hashes) >= 0",
        PEOPLE,
    ),
    Fault(
        "engine/steps: a cut answer does not name the agent that made it",
        "engine/steps/cut.py",
        "agent=session.active_agent,",
        'agent="",',
        _runs("cut_answers"),
    ),
    Fault(
        "engine/guards: messages that have an answer are judged again",
        "engine/guards/inputs.py",
        "if isinstance(message, AssistantMessage) or (isinstance(message, UserMessage) and not message.id):",
        "if isinstance(message, UserMessage) and not message.id:",
        PEOPLE,
    ),
    Fault(
        "engine: a message that steered a run keeps waiting",
        "engine/inbox.py",
        "arrived.operations.extend([moved, message_put(new, new.count, entry)])",
        "arrived.operations.extend([message_put(new, new.count, entry)])",
        PEOPLE,
    ),
    Fault(
        "engine/runs: a stop hits the run after the one that it names",
        "engine/runs/ends.py",
        "running = Check(session_key(session_id), held_by_run(stop.run_id))",
        'running = Check(session_key(session_id), When(equal={"status": "running"}))',
        _runs("interrupts"),
    ),
    Fault(
        "engine/runs: a draw after a run's end is never returned",
        "engine/runs/ends.py",
        "await return_draws(engine, session, run)  # a zombie may have drawn after the effects",
        "pass  # a zombie may have drawn after the effects",
        [*_runs("budget_crashes", "budgets"), "tests/properties/test_budget_properties.py"],
    ),
    Fault(
        "engine/money: an attempt with unknown usage is charged what was reported",
        "engine/money/reservations.py",
        "return Worst(max(tokens, claim.tokens), max(micros, claim.micros))",
        "return Worst(tokens, micros)",
        [*_unit("worst_case"), *_runs("budgets", "budget_worst_cases")],
    ),
    Fault(
        "engine/observers: hooks are given messages under ids of later ones",
        "engine/observers/hooks.py",
        "message = message_of(entry, session.lineage, session.count - len(fact.entries) + place)",
        "message = message_of(entry, session.lineage, session.count + place)",
        _runs("hooks"),
    ),
    # --- sessions
    Fault(
        "sessions: a paused session expires",
        "sessions/deletion.py",
        'at_work = session.status == "paused" or (session.status == "running" and not lapsed(session, now))',
        'at_work = session.status == "running" and not lapsed(session, now)',
        [*_runs("retention"), "tests/properties/test_retention_properties.py"],
    ),
    Fault(
        "sessions: the sweep finishes a run whose execution still finishes it",
        "sessions/sweep.py",
        'if state == "running" and not ended_long_ago:',
        'if state == "running" and ended_long_ago:',
        [*_runs("deliveries", "admission_crashes", "deployed_runtime", "damaged_runs"), *_unit("stopping")],
    ),
    # --- adapters
    Fault(
        "adapters: a deletion in memory wakes no reader",
        "adapters/memory.py",
        "self._watchers.wake((key.table, key.partition) for key, _ in after)",
        "self._watchers.wake((key.table, key.partition) for key, text in after if text is not None)",
        _contracts("memory"),
    ),
    Fault(
        "adapters: SQLite deletes a row that was renewed meanwhile",
        "adapters/sqlite.py",
        "gone = [row for row in rows if db.execute(sql, (*row, now)).fetchone()]",
        "gone = list(rows)",
        _contracts("sqlite", "sqlite_in_place", "sqlite_limits", "sqlite_files"),
    ),
    Fault(
        "adapters: in Redis a missing number is below any bound",
        "adapters/redis/scripts.py",
        "holds = holds and order ~= nil and order < 0",
        "holds = holds and (order == nil or order < 0)",
        _contracts("redis", "redis_laws", "redis_numbers"),
    ),
    Fault(
        "adapters: DynamoDB's unread keys are taken for missing rows",
        "adapters/aws/dynamodb.py",
        'wanted = answer.get("UnprocessedKeys") or {}',
        "wanted = {}",
        _contracts("dynamodb_laws", "dynamodb"),
    ),
    Fault(
        "adapters: a row that moves out of its pack between two reads is missing",
        "adapters/aws/packing.py",
        "if found[place] is None and is_packable(key) and packs[key.partition].number is not None",
        "if found[place] is None and is_packable(key) and packs[key.partition].number is None",
        _contracts("packing"),
    ),
    Fault(
        "adapters: calls that a server gives the same index become one",
        "adapters/models/answer.py",
        "if current is None or (name and call_id and current.id and call_id != current.id):",
        "if current is None:",
        [*_contracts("model_adapters"), *_runs("litellm_adapter", "litellm_providers")],
    ),
    # --- stream
    Fault(
        "stream: a gap that would close is reported as lost",
        "stream/reader.py",
        "if suspect != position:",
        "if suspect == position:",
        _unit("stream_reader"),
    ),
    # --- runtime
    Fault(
        "runtime: a run reports the abort of a later one",
        "runtime/handle.py",
        'run = last if last.mode == "abort" and last.previous_run_id == run_id else run',
        'run = last if last.mode == "abort" else run',
        _runs("aborts_at_rest", "resume", "interrupts"),
    ),
    # --- gateway
    Fault(
        "gateway: two users with one key share a run",
        "gateway/actions.py",
        'own = ["id", caller.connection_id, request.id] if request.key is None else ["key", caller.principal, request.key]',
        'own = ["id", caller.connection_id, request.id] if request.key is None else ["key", request.key]',
        _runs("gateway_sessions", "gateway_owners", "request_keys", "gateway"),
    ),
    # --- client, http, mcp
    Fault(
        "client: the message that was read last comes again",
        "client/feed.py",
        "if message.sequence > after:",
        "if message.sequence >= after:",
        [*_unit("feed"), *_runs("client", "client_failures")],
    ),
    Fault(
        "http: a sub-agent's question is answered at its parent",
        "http/turns.py",
        "found[shown] = Question(row.session_id, one.call_id, one.kind, one.arguments, one.round)",
        "found[shown] = Question(session.session_id, one.call_id, one.kind, one.arguments, one.round)",
        _runs("http", "http_answers"),
    ),
    Fault(
        "mcp: a repeated call starts a second run",
        "mcp/calls.py",
        'key = _key(caller, card, arguments) or self._ids.new("key")  # a repeated request must find the same run',
        'key = self._ids.new("key")  # a repeated request must find the same run',
        _runs("mcp_server", "mcp_access", "mcp_limits"),
    ),
    # --- fleet, workers, compat
    Fault(
        "fleet: machines that are owed are forgotten by the next decision",
        "fleet/decisions.py",
        'changes = {"state": state, "pending": None, "owed": standing.owed or owed}',
        'changes = {"state": state, "pending": None, "owed": owed}',
        [*_unit("decisions"), *_runs("governing", "governing_crashes")],
    ),
    Fault(
        "workers: a fleet that shrinks ends busy workers first",
        "workers/supervisor.py",
        "for info in sorted(running, key=lambda info: info.worker_id in busy)[:surplus]:",
        "for info in sorted(running, key=lambda info: info.worker_id not in busy)[:surplus]:",
        ["tests/fleet/test_runtime.py", "tests/fleet/test_worker.py"],
    ),
    Fault(
        "compat: the cache keeps answers that call tools",
        "compat/cache.py",
        "return (self._sampled or not sampled) and (self._tool_calls or not _calls_tools(response))",
        "return self._sampled or not sampled",
        [*_unit("fleet_cache", "compat"), *_contracts("response_cache")],
    ),
    # --- console, local, cli
    Fault(
        "console: a page of another origin may sign in",
        "console/server.py",
        "why = self.find_refusal(console.port, from_links=True)",
        "why = None",
        _runs("console_server"),
    ),
    Fault(
        "local: a request's late changes are not saved",
        "local/state_file.py",
        "once_more, self._changed = self._changed, False",
        "once_more, self._changed = False, False",
        _runs("emulator_state", "emulator"),
    ),
    Fault(
        "cli: a hint leaves out the store that it is about",
        "cli/where.py",
        'return [] if self.db == settings().db else ["--db", self.db]',
        "return []",
        _runs("cli", "cli_everywhere"),
    ),
    # --- infra, functions, clients/js
    Fault(
        "infra: a delivery whose worker died is not repeated",
        "infra/definition.py",
        '"Runtime.ExitError",',
        '"Runtime.ExitErrors",',
        ["tests/infra/test_definition.py"],
    ),
    Fault(
        "functions: a trigger's message that must come again is dropped",
        "gateway/lambdas_triggers.py",
        "if not (final and await _set_aside(app, record, code, str(error))):",
        "if not final:",
        ["tests/functions/test_triggers.py"],
    ),
    Fault(
        "clients/js: a message that was read stays in the gap",
        "clients/js/src/feed.ts",
        "if (message.sequence > this.position) this.#early.set(message.sequence, message);",
        "if (message.sequence >= this.position) this.#early.set(message.sequence, message);",
        ["tests/js/test_package.py", "tests/js/test_client.py", "tests/js/test_wires.py"],
        slow=True,
    ),
)
