"""The gRPC client of mcoded: mcode.v1 over the daemon's Unix socket.

The messages and stubs are generated from the repository's .proto files on the first import, by the grpcio-tools that
are installed, so they always fit the installed protobuf.
"""

from __future__ import annotations

import getpass
import os
import sys
import tempfile
from pathlib import Path

import grpc

PROTO = Path(os.environ.get("MCODE_PROTO") or Path(__file__).resolve().parents[3] / "proto")
_GEN = Path(__file__).resolve().parent / "_gen"


def _generate() -> Path:
    """Generates the stubs when they are missing or older than the .proto files; gives their folder."""
    sources = sorted((PROTO / "mcode" / "v1").glob("*.proto"))
    marker = Path("mcode") / "v1" / "types_pb2.py"
    newest = max((source.stat().st_mtime for source in sources), default=0.0)
    if (_GEN / marker).exists() and (_GEN / marker).stat().st_mtime >= newest:
        return _GEN
    if not sources:
        raise ImportError(f"no .proto files in {PROTO}: set MCODE_PROTO to the folder 'proto' of the repository")
    from grpc_tools import protoc  # only needed here

    well_known = Path(protoc.__file__).parent / "_proto"
    target = _GEN
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError:  # an installation that can not be written
        target = Path(tempfile.mkdtemp(prefix=f"mcode-client-{getpass.getuser()}-"))
    failed = protoc.main(
        ["protoc", f"-I{PROTO}", f"-I{well_known}", f"--python_out={target}", f"--grpc_python_out={target}"]
        + [str(source) for source in sources]
    )
    if failed:
        raise ImportError(f"protoc could not read the .proto files in {PROTO}")
    return target


sys.path.insert(0, str(_generate()))

from mcode.v1 import (  # noqa: E402
    approval_service_pb2 as approvals,
    approval_service_pb2_grpc,
    checkpoint_service_pb2 as checkpoints,
    checkpoint_service_pb2_grpc,
    daemon_service_pb2 as daemon,
    daemon_service_pb2_grpc,
    event_pb2,
    event_service_pb2 as events,
    event_service_pb2_grpc,
    model_service_pb2 as models,
    model_service_pb2_grpc,
    permission_service_pb2 as permissions,
    permission_service_pb2_grpc,
    plan_service_pb2 as plans,
    plan_service_pb2_grpc,
    run_service_pb2 as runs,
    run_service_pb2_grpc,
    thread_service_pb2 as threads,
    thread_service_pb2_grpc,
    types_pb2 as types,
)

__all__ = [
    "Client",
    "approvals",
    "checkpoints",
    "daemon",
    "event_pb2",
    "events",
    "models",
    "permissions",
    "plans",
    "runs",
    "socket_path",
    "threads",
    "types",
]


def socket_path() -> str:
    """Where the daemon listens: MCODE_SOCKET, else below MCODE_HOME, else below XDG_RUNTIME_DIR."""
    if explicit := os.environ.get("MCODE_SOCKET"):
        return explicit
    if home := os.environ.get("MCODE_HOME"):
        return os.path.join(home, "run", "v1", "mcoded.sock")
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        return os.path.join(runtime, "mcode", "v1", "mcoded.sock")
    raise RuntimeError("the socket is not known: set MCODE_SOCKET (mcode daemon status prints it)")


class Client:
    """One connection, with a stub for each service. Use it as a context manager."""

    def __init__(self, socket: str | None = None):
        options = [("grpc.max_receive_message_length", 64 << 20), ("grpc.default_authority", "mcoded.localhost")]
        self.channel = grpc.insecure_channel(f"unix:{socket or socket_path()}", options=options)
        self.approvals = approval_service_pb2_grpc.ApprovalServiceStub(self.channel)
        self.checkpoints = checkpoint_service_pb2_grpc.CheckpointServiceStub(self.channel)
        self.daemon = daemon_service_pb2_grpc.DaemonServiceStub(self.channel)
        self.events = event_service_pb2_grpc.EventServiceStub(self.channel)
        self.models = model_service_pb2_grpc.ModelServiceStub(self.channel)
        self.permissions = permission_service_pb2_grpc.PermissionServiceStub(self.channel)
        self.plans = plan_service_pb2_grpc.PlanServiceStub(self.channel)
        self.runs = run_service_pb2_grpc.RunServiceStub(self.channel)
        self.threads = thread_service_pb2_grpc.ThreadServiceStub(self.channel)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.channel.close()

    def start(self, prompt: str, *, cwd: str | None = None, interactive: bool = True, **fields) -> runs.StartRunResponse:
        """Starts a run. `fields` are further fields of StartRunRequest, such as model, thread_id or approve."""
        import uuid

        fields.setdefault("request_id", str(uuid.uuid4()))
        mask = os.umask(0o077)
        os.umask(mask)
        context = runs.ClientContext(
            cwd=os.path.realpath(cwd or os.getcwd()),
            env=dict(os.environ),
            umask=mask,
            interactive=interactive,
            client="mcode_client.py",
        )
        return self.runs.StartRun(
            runs.StartRunRequest(input=[types.InputPart(text=prompt)], context=context, **fields), timeout=30
        )

    def follow(self, run: runs.StartRunResponse):
        """The run's durable events, in order, up to and with its run_finished."""
        request = events.SubscribeRequest(thread_id=run.thread_id, after_seq=run.seq)
        stream = self.events.Subscribe(request)
        try:
            for response in stream:
                for event in response.events.events:
                    if event.run_id == run.run_id:
                        yield event
                        if event.WhichOneof("body") == "run_finished":
                            return
        finally:
            stream.cancel()

    def allow(self, approval: types.Approval) -> None:
        """Lets a tool call run, this once."""
        self.approvals.ResolveApproval(
            approvals.ResolveApprovalRequest(
                approval_id=approval.approval_id, decision=approvals.DECISION_ALLOW, by="mcode_client.py"
            ),
            timeout=30,
        )
