"""Looks after threads as a script does: finds, forks, takes back, tags, exports, and undoes; every list page by page."""

import os
import sys
import uuid

from google.protobuf import field_mask_pb2

from mcode_client import Client, checkpoints, plans, threads

PAGE = 2  # small, so that there are several


def pages(call, request, field):
    """All entries of a list, page by page."""
    request.page_size = PAGE
    while True:
        response = call(request, timeout=30)
        yield from getattr(response, field)
        if not response.next_page_token:
            return
        request.page_token = response.next_page_token


def look_after(client: Client, cwd: str, words: str) -> dict:
    """Does all of it with the newest thread of a folder; tells what came of it."""
    told = {}
    newest = next(iter(pages(client.threads.ListThreads, threads.ListThreadsRequest(cwd=cwd), "threads")))
    request = threads.SearchThreadsRequest(query=words, cwd=cwd)
    told["found"] = [hit.role for hit in pages(client.threads.SearchThreads, request, "hits")]

    # Another way from there on, from which the last prompt is taken back.
    fork = client.threads.ForkThread(
        threads.ForkThreadRequest(request_id=str(uuid.uuid4()), thread_id=newest.thread_id, title="another way"),
        timeout=30,
    )
    told["dropped"] = client.threads.RewindThread(
        threads.RewindThreadRequest(thread_id=fork.thread_id, to_seq=1), timeout=30
    ).dropped
    tagged = client.threads.UpdateThread(
        threads.UpdateThreadRequest(
            thread_id=fork.thread_id, update_mask=field_mask_pb2.FieldMask(paths=["tags"]), tags=["tried"]
        ),
        timeout=30,
    )
    told["tags"] = list(tagged.thread.tags)
    request = threads.ListThreadTreeRequest(thread_id=fork.thread_id)
    nodes = pages(client.threads.ListThreadTree, request, "nodes")
    told["tree"] = [(node.thread.title, node.depth) for node in nodes]

    request = threads.ExportThreadRequest(thread_id=newest.thread_id, format=threads.EXPORT_FORMAT_MARKDOWN)
    told["markdown"] = b"".join(piece.chunk for piece in client.threads.ExportThread(request)).decode()

    # What the agent did to the files, and back.
    request = checkpoints.ListCheckpointsRequest(thread_id=newest.thread_id)
    told["checkpoints"] = len(list(pages(client.checkpoints.ListCheckpoints, request, "checkpoints")))
    diff = client.checkpoints.DiffCheckpoint(
        checkpoints.DiffCheckpointRequest(thread_id=newest.thread_id), timeout=60
    )
    told["diff"] = {file.path: file.unified for file in diff.files}
    restored = client.checkpoints.RestoreCheckpoint(
        checkpoints.RestoreCheckpointRequest(thread_id=newest.thread_id, checkpoint_id=diff.checkpoint_id), timeout=60
    )
    told["restored"] = [(file.path, file.action) for file in restored.files]

    request = plans.ListPlansRequest(cwd=cwd)
    told["plans"] = [(plan.title, plan.status) for plan in pages(client.plans.ListPlans, request, "plans")]
    return told


if __name__ == "__main__":
    with Client() as connected:
        for key, value in look_after(connected, os.getcwd(), " ".join(sys.argv[1:]) or "test").items():
            print(f"{key}: {value}")
