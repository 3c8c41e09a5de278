"""One benchmark: the traffic of a job against servers that run, kept as a record."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from meshfit.errors import InputError
from meshfit.record.environment import host_environment
from meshfit.record.files import write_json_atomically
from meshfit.record.serving import ServedRequest, ServingRecord
from meshfit.serve.asked.traffic import TrafficSpec
from meshfit.serve.bench.open_loop import CLIENT, ROUTER, drive, prompts_of
from meshfit.serve.bench.tools import ToolName, ToolRun, run_tool
from meshfit.serve.job.spec import ServingJob
from meshfit.serve.servers.held import server_memory
from meshfit.serve.servers.running import RunningServer
from meshfit.serve.setting.layout import Deployment
from meshfit.serve.simulate.arrivals import Draw, draw_requests
from meshfit.serve.simulate.window import WARM_UP_FRACTION

ClientName = Literal["own", ToolName]


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """What is to be sent: ``requests`` of a job's traffic, as ``client`` draws and sends them."""

    job: ServingJob
    layout: Deployment
    client: ClientName = "own"

    @property
    def draw(self) -> Draw:
        """Requests as our own client draws them; a simulation of the same draw sends the same."""
        run, longest = self.job.run, self.job.model.max_position_embeddings
        return Draw(requests=run.requests, seed=run.seed, longest_tokens=longest)

    def against(self, servers: Sequence[RunningServer], folder: Path) -> ServingRecord:
        """Drives ``servers``; the record is also in ``folder / bench.json``.

        Raises:
            InputError: the client is not installed, or not made for such traffic or several servers.
            RunError: the client itself failed; a request that fails is a row.
        """
        started_at = datetime.now(UTC).isoformat(timespec="seconds")
        served = self._drive(servers, folder)
        record = ServingRecord(
            started_at=started_at,
            client=CLIENT if self.client == "own" else self.client,
            loop="open",
            server=servers[0].description,
            router=ROUTER if len(servers) > 1 else "none: one server",
            layout=self.layout.as_json(),
            traffic=traffic_document(self.job.traffic),
            seed=self.job.run.seed,
            warm_up=int(WARM_UP_FRACTION * len(served)),
            requests=served,
            environment=host_environment(),
            memory=server_memory(servers[0]),
        )
        write_json_atomically(folder / "bench.json", record)
        return record

    def _drive(self, servers: Sequence[RunningServer], folder: Path) -> tuple[ServedRequest, ...]:
        job = self.job
        if job.traffic.concurrency is not None:
            raise InputError("servers are driven in an open loop; give traffic.rate or a trace")
        if self.client == "own":
            requests = draw_requests(job.traffic, self.draw)
            prompts = prompts_of(requests, vocab_size=job.model.vocab_size, seed=job.run.seed)
            return drive(servers, requests, prompts, timeout_s=job.run.deadline_s)
        if len(servers) > 1:
            raise InputError(f"{self.client} drives one URL; for several replicas use --client own")
        tokenizer = None if job.weights is None else str(job.weights)
        run = ToolRun(
            server=servers[0],
            traffic=job.traffic,
            requests=job.run.requests,
            seed=job.run.seed,
            tokenizer=tokenizer,
            result=folder / f"{self.client}.json",
        )
        return run_tool(self.client, run, timeout_s=job.run.deadline_s * 10)


def traffic_document(traffic: TrafficSpec) -> dict[str, Any]:
    """Traffic as JSON; what is not given is left out."""
    document = {key: value for key, value in asdict(traffic).items() if value is not None}
    if traffic.trace is not None:
        return {"arrivals": "trace", "trace": traffic.trace.name}
    return document
