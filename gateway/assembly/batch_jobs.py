"""Files and batches: their stores, their API and their runner, which outlive reloads."""

import datetime
import os
from collections.abc import Callable, Mapping, Sequence
from random import SystemRandom
from typing import Final
from urllib.parse import unquote, urlsplit
from zoneinfo import ZoneInfo

from gateway.assembly.builder import Pipeline, PipelineBuilder
from gateway.assembly.upstreams import vouched_caller
from gateway.auth.model_access import ModelAccess
from gateway.batch_jobs.folder_store import FolderBlobStore
from gateway.batch_jobs.library import BatchLibrary, BatchRules
from gateway.batch_jobs.redis_store import RedisJobStore
from gateway.batch_jobs.results import LineUsage
from gateway.batch_jobs.room import Admission
from gateway.batch_jobs.runner import BatchFigures, BatchRunner
from gateway.batch_jobs.send_gate import SendGate
from gateway.batch_jobs.sqlite_store import SqliteJobStore
from gateway.batch_jobs.store import BatchStoreUnavailable, BlobStore, JobStore
from gateway.batch_jobs.traffic import LineAnswer, LineOwner
from gateway.batch_jobs.verdict import BudgetState
from gateway.batch_jobs.windows import OpenHours
from gateway.config import model as cfg
from gateway.core.call import Call, ClientRequest
from gateway.core.caller import Caller
from gateway.core.clock import Clock
from gateway.core.errors import DRAINING, Rejection
from gateway.http.server.admin import AdminUnavailable
from gateway.http.server.handler import RequestHandler
from gateway.http.server.line_calls import LineCalls
from gateway.http.server.stored_api import StoredApi
from gateway.limits.account import Account
from gateway.limits.shared_limits import SharedAccount
from gateway.telemetry.logging import logger
from gateway.telemetry.metrics import Metrics
from gateway.wire.endpoints import ENDPOINTS
from gateway.wire.openai.models import UNKNOWN

_ENDPOINTS: Final = {
    str(one): one
    for one in ENDPOINTS
    if not (one.ours or one.internal or one.any_answer or "{" in one)
    and "POST" in one.methods
    and "application/json" in one.media_types
}
"""What lines may call, by path."""
_SHARING: Final = frozenset(("weighted", "least_loaded"))
"""Strategies that spread calls over all candidates."""
_SHOWN: Final = 100
_LINE_OVERHEAD: Final = 64 * 1024
"""Bytes of a line besides the request in it."""


class BatchJobs:
    """The parts of batches, if they are enabled."""

    def __init__(
        self,
        config: cfg.Config,
        pipelines: PipelineBuilder,
        metrics: Metrics,
        clock: Clock,
        unix: Clock,
        *,
        first: bool = True,
    ) -> None:
        """`first`: this is the first of several workers."""
        self._config = config
        self._pipelines = pipelines
        self._metrics = metrics
        self._clock = clock
        self._unix = unix
        self._first = first
        self._random = SystemRandom()
        self._library: BatchLibrary | None = None
        self._runner: BatchRunner | None = None

    async def open(self) -> StoredApi | None:
        """Open the stores; None if batches are off. A store that is away now is tried again later."""
        config = self._config.batches
        if not config.enabled:
            return None
        store, blobs = self._stores(f"{os.getpid():x}-{self._random.getrandbits(48):012x}")
        rules = BatchRules(
            config.max_file,
            config.max_disk,
            config.max_lines,
            self._config.server.max_body + _LINE_OVERHEAD,
            config.keep,
            OpenHours(config.hours) if config.hours is not None else None,
        )
        for part in (blobs, store):
            try:
                await part.open()
            except BatchStoreUnavailable as error:
                logger.error("batches wait: %s", error)
        self._library = BatchLibrary(store, blobs, rules, self._unix, self._new_id)
        return StoredApi(self._library, _ENDPOINTS, self._config.server.body_timeout)

    def _stores(self, owner: str) -> tuple[JobStore, BlobStore]:
        config, redis = self._config.batches, self._config.redis
        if config.url is None or redis is None:
            return SqliteJobStore(config.path, owner), FolderBlobStore(config.path)
        store = RedisJobStore(redis.address(), redis.prefix, owner)
        if config.url.startswith("file:"):
            return store, FolderBlobStore(unquote(urlsplit(config.url).path))
        from gateway.batch_jobs.object_store import ObjectBlobStore  # an optional package

        return store, ObjectBlobStore(config.url, self._clock)

    def _new_id(self, unix: float) -> str:
        """Ascending by the millisecond."""
        return f"{int(unix * 1000):012x}{self._random.getrandbits(48):012x}"

    def start(self, handler: RequestHandler, pipeline: Callable[[], Pipeline]) -> None:
        """Begin to run batches."""
        if self._library is None:
            return
        traffic = GatewayTraffic(LineCalls(handler), pipeline, self._pipelines, self._clock)
        zone = ZoneInfo(self._config.server.timezone)
        gate = SendGate(traffic, self._library.rules.hours, lambda: minute_of_day(self._unix(), zone), self._clock)
        self._runner = BatchRunner(self._library, traffic, gate, self._clock, self._unix, self._publish)
        self._library.on_change = self._runner.note
        self._runner.start()

    def _publish(self, figures: BatchFigures) -> None:
        # All workers see the same batches, and each sends lines of its own: the first one speaks for all, less these.
        seen = figures if self._first else BatchFigures(waiting=-figures.under_way, under_way=figures.under_way)
        for state in ("waiting", "under_way", "completed", "failed"):
            self._metrics.batch_job_lines.set(getattr(seen, state), state)
        self._metrics.batch_job_age.set(figures.age_s)
        self._metrics.batch_jobs_late.set(figures.late)

    async def view(self, query: Mapping[str, str]) -> object:
        """`/admin/batches`: the newest batches of all keys, as the API shows them, without their metadata."""
        library = self._library
        if library is None:
            return []
        try:
            jobs = await library.newest(_SHOWN)
            shown = [{"key": job.key, **job.shown(await library.tally(job))} for job in jobs]
        except BatchStoreUnavailable as error:
            return AdminUnavailable(str(error))
        return [{name: value for name, value in one.items() if name != "metadata"} for one in shown]

    async def cancel(self, id: str) -> str | None:
        """Cancel a batch of any key; returns its status then, None if there is no such batch."""
        job = await self._library.any_batch(id) if self._library is not None else None
        return None if job is None or self._library is None else (await self._library.cancel(job)).status

    def drain(self) -> None:
        """Send no more lines."""
        if self._runner is not None:
            self._runner.drain()

    async def close(self) -> None:
        """Stop, and release what others may go on with."""
        if self._runner is not None:
            await self._runner.close()
        library, self._library, self._runner = self._library, None, None
        if library is not None:
            await library.store.close()
            await library.blobs.close()


def minute_of_day(unix: float, zone: datetime.tzinfo) -> int:
    """The minute of the local day, from 0."""
    local = datetime.datetime.fromtimestamp(unix, zone)
    return local.hour * 60 + local.minute


class GatewayTraffic:
    """A `LineTraffic` over the generation that serves now."""

    def __init__(
        self, calls: LineCalls, pipeline: Callable[[], Pipeline], pipelines: PipelineBuilder, clock: Clock
    ) -> None:
        self._calls = calls
        self._pipeline = pipeline
        self._pipelines = pipelines
        self._clock = clock

    def _caller(self, owner: LineOwner) -> Caller | None:
        pipeline = self._pipeline()
        if not owner.group:
            return pipeline.caller_named(owner.key)
        config = pipeline.config
        names = {
            name
            for provider in config.auth.jwt
            for group, name in provider.map.items()
            if owner.group == f"{provider.name}:{group}"
        }
        for key in config.keys:
            if key.name in names:
                make = vouched_caller(key, list(config.models), self._pipelines.accounts.vouched)
                return make(owner.key, owner.group)
        return None

    def knows(self, owner: LineOwner) -> bool:
        """Whether the key, or the group, exists."""
        return self._caller(owner) is not None

    def refused_model(self, owner: LineOwner, model: str) -> tuple[str, str] | None:
        """What a live call of this model would be told, if it would be refused."""
        caller = self._caller(owner)
        if caller is None:
            return None
        call = Call(ClientRequest(UNKNOWN, "", model=model), 0.0)
        call.caller = caller
        rejection = ModelAccess(self._pipeline().names).admit(call, 0.0)
        return None if rejection is None else (rejection.kind.code, rejection.message)

    def wait_for(self, owner: LineOwner) -> float:
        """Seconds until the key's limits admit any call, as far as this process knows them."""
        caller = self._caller(owner)
        account = caller.account if caller is not None else None
        denial = account.exhausted(self._clock()) if isinstance(account, Account) else None
        return 0.0 if denial is None else denial.wait

    def upstreams(self, model: str) -> Sequence[str]:
        """The upstream of the first candidate, or all of them where calls are spread."""
        pipeline = self._pipeline()
        route = pipeline.names.find(model)
        if route is None:
            return ()
        names = list(dict.fromkeys(candidate.upstream for candidate in route.candidates))
        return names if pipeline.config.models[route.name].route in _SHARING else names[:1]

    def admission(self, upstream: str) -> Admission:
        """The state of an upstream's queue."""
        queue = self._pipeline().queue.queue(upstream)
        paced = queue.pace is not None and queue.pace.wait(1, self._clock()) > 0
        return Admission(queue.permits, queue.interactive, queue.waiting, paced)

    async def send(self, owner: LineOwner, endpoint: str, body: bytes) -> LineAnswer:
        """Send a call of the owner."""
        caller = self._caller(owner)
        if caller is None:  # a reload has just removed it; the line waits with the others
            return LineAnswer(DRAINING.status, b"", "", Rejection(DRAINING, "The key does not exist any more."))
        asked = _ENDPOINTS[endpoint]
        call, answer = await self._calls.send(caller, asked, body)
        tokens, cost = call.usage.tokens, call.usage.cost or 0
        usage = LineUsage(cost=cost)
        if tokens is not None:
            usage = LineUsage(tokens.input, tokens.cached_input, tokens.output, tokens.reasoning, cost)
        id = call.request.id
        if isinstance(answer, Rejection):
            body = asked.errors.body(answer, id)
            return LineAnswer(call.response.status, body, id, answer, usage, budget=self._budget(call))
        return LineAnswer(answer.status, answer.body, id, None, usage, call.batch_size)

    def _budget(self, call: Call) -> BudgetState:
        """Why the key's budget refuses the call, if it does."""
        account, limit = call.caller.account, self._pipelines.limit
        if not isinstance(account, Account | SharedAccount) or call.usage.estimate is None:
            return ""
        budget = account.limits.usd_per_day
        if budget is None:
            return ""
        if limit.request(call, account.limits).committed_cost > budget:
            return "too small"
        return "reserved" if account.reserved(limit.day(self._clock())) > 0 else ""
