"""Model calls that wait for a provider's batch (docs/protocol.md#batches).

Law: the transaction that claims the step stores the call. From then on the call has one answer, and the transaction that
stages the answer deletes the call. `engine.batches` sends the calls and collects the answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from helix._log import describe
from helix.core.batch_rows import BatchedCall, BatchQueue
from helix.core.errors import DefinitionError, HelixError, InvalidInputError, ModelError
from helix.core.json import dumps, text_of, text_size
from helix.core.messages import files_of
from helix.core.rows import ErrorInfo
from helix.core.session_row import SessionRow
from helix.core.steps import AnyStepResult, ErrorStepResult, storable
from helix.core.usage import Usage
from helix.engine.context import RunContext
from helix.engine.engine import Outcome, Waits, logger
from helix.engine.facts import ModelAnswered, ModelCallEnded
from helix.engine.observers import record, show
from helix.engine.steps.ask import ModelAnswer, prepare
from helix.engine.steps.cached import remember
from helix.engine.steps.close import Ending, close_run
from helix.engine.steps.streamed import AnswerStream
from helix.engine.steps.summary import without_summary
from helix.engine.steps.take import take_answer
from helix.engine.steps.views import Prepared
from helix.engine.writing import commit, no_outcome_check
from helix.ports.batches import BatchForm
from helix.ports.model import LLMGenerateInput
from helix.ports.state_store import Operation
from helix.services.batch_rows import (
    UNSENT,
    call_deletes,
    call_id_of,
    call_puts,
    find_call,
    find_queue,
    queue_of,
    queue_put,
)

UNSUPPORTED = "batch_unsupported"


@dataclass(frozen=True, slots=True)
class WaitingCall:
    """A model call that is about to wait for a batch."""

    queue: str
    """The name of its queue."""
    form: BatchForm
    """The request in the provider's form."""
    tries: int
    """The number of batches that it may be sent in."""

    def puts(self, run: RunContext, new: SessionRow) -> Sequence[Operation]:
        """Name the call in the claim of `new`, and return the operations that store it."""
        assert new.claim is not None
        reference = f"{self.queue}/{call_id_of(new.session_id, new.claim.attempt_id)}"
        new.claim = new.claim.model_copy(update={"batch": reference})
        now = run.now()
        call = BatchedCall(
            session_id=new.session_id,
            created_at=new.created_at,
            agent_type=new.agent_type,
            claim=new.claim,
            head=new.head,
            output_limit=new.output_limit,
            user_id=new.user_id,
            put_at=now,
            due_at=now,
            size=text_size(dumps(self.form.body)),
            tries=self.tries,
        )
        return call_puts(reference, call, self.form.body)


async def _read_answer(run: RunContext, session: SessionRow, call: BatchedCall, prepared: Prepared) -> ModelAnswer:
    """Return the answer of the call, and show it to readers in one piece."""
    claim, request = session.claim, replace(prepared.request, batch=True)
    assert claim is not None
    fact = ModelCallEnded(claim, request, call.put_at)
    stream = AnswerStream(run, fact, has_output=request.output_schema is not None)
    result = storable(await _result(run, request, call))
    stream.show_parts(result)
    fact.first, fact.result = None, result
    show(run, fact)
    await remember(run, session, request, result)
    stream.show_output(result)
    await record(run, ModelAnswered(claim, result))
    await run.stream.flush()
    return ModelAnswer(result)


async def _result(run: RunContext, request: LLMGenerateInput, call: BatchedCall) -> AnyStepResult:
    batches = run.engine.models(run.agent).batches
    if call.error is not None or call.answer is None or batches is None:
        error = call.error or ErrorInfo(code=UNSUPPORTED, message="the model's adapter no longer has batches")
        return ErrorStepResult(error=error.message, code=error.code, model=request.config.model)
    try:
        queue = await find_queue(run.engine.store, run.session.claim.batch if run.session.claim is not None else "")
        if queue is None:
            raise InvalidInputError("the queue of a batched call is gone")
        return await batches.read(queue.place, request, call.answer)
    except HelixError as error:
        logger.warning("run %s: the answer of a batch cannot be read", run.run_id, exc_info=True)
        return ErrorStepResult(error=text_of(error), code=error.code, usage=Usage(unknown_calls=1))


async def form_call(run: RunContext, request: LLMGenerateInput) -> WaitingCall | ErrorInfo | None:
    """Return the call in the provider's form, and store its queue. None: the call does not wait for a batch. An error if
    batches do not support it."""
    if not request.batch:
        return None
    adapter = run.engine.models(run.agent)
    if (problem := _problem(run, request)) is not None or adapter.batches is None:
        problem = problem or f"the adapter of model {request.config.model!r} has no batches"
        return ErrorInfo(code=UNSUPPORTED, message=f"agent {run.agent.name!r} has batch=True, but {problem}")
    try:
        form = await adapter.batches.form(request)
    except DefinitionError as error:
        return ErrorInfo(code=UNSUPPORTED, message=f"agent {run.agent.name!r} has batch=True, but {error}")
    except ModelError as error:
        return ErrorInfo(code=error.code, message=text_of(error))
    except Exception as error:
        logger.warning("run %s: the request cannot be formed for a batch", run.run_id, exc_info=True)
        return ErrorInfo(code="adapter_failed", message=f"the model adapter raised {describe(error)}")
    queue = BatchQueue(agent=run.agent.name, place=form.place)
    name = queue_of(queue)
    if name not in run.engine.known_queues:
        await commit(run.engine, "put_batch_queue", [queue_put(name, queue)], no_outcome_check)
        run.engine.known_queues.add(name)
    return WaitingCall(name, form, 1 + request.config.max_retries)


def _problem(run: RunContext, request: LLMGenerateInput) -> str | None:
    """Return the reason why the run cannot wait for a batch."""
    if not run.engine.placement.executes_whole_runs:
        return "batches currently work only with LocalExecutor: leave batch out on a stage and in worker processes"
    if run.session.parent is not None:
        return "a sub-agent cannot wait for a batch"
    if files_of(request.messages):
        return "a batch cannot contain files yet"
    return None


async def take_batched(run: RunContext, session: SessionRow) -> Outcome | None:
    """Stage the answer of the step's batched call, or say that the call still waits. The answer was asked for under this
    claim, so no other one is needed."""
    assert session.claim is not None
    call = await find_call(run.engine.store, session.claim.batch)
    if call is None or not call.ended:
        return Waits()
    prepared = await prepare(run, session, None, run.next_version(session, context=without_summary(session)))
    if isinstance(prepared, ErrorInfo):
        return await close_run(run, session, Ending("failed", error=prepared))
    return await take_answer(run, session, prepared, await _read_answer(run, session, call, prepared))


async def withdraw_batched(run: RunContext, session: SessionRow) -> Sequence[Operation]:
    """Return the operations that take the step's call back, if it waits for a batch and was not sent. Nothing is billed
    for it, so the claim is dropped from `session`, which the end of the run writes."""
    if session.claim is None or not session.claim.batch:
        return ()
    reference = session.claim.batch
    call = await find_call(run.engine.store, reference)
    if call is None or call.batch is not None or call.ended:
        return ()
    session.claim = None
    return call_deletes(reference, UNSENT)
