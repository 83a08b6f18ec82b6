"""Starts a run, streams its events, allows what it asks for, and prints its answer."""

import os
import sys

from mcode_client import Client, runs


def main(prompt: str, cwd: str, model: str) -> str:
    text = ""
    with Client() as client:
        run = client.start(prompt, cwd=cwd, model=model, approve=runs.APPROVAL_POLICY_ASK)
        for event in client.follow(run):
            print(event.seq, event.WhichOneof("body"), file=sys.stderr)
            if event.HasField("approval_requested"):
                client.allow(event.approval_requested.approval)
            if event.HasField("message_finished") and event.message_finished.role == "assistant":
                text = event.message_finished.text or text
    return text


if __name__ == "__main__":
    print(main(" ".join(sys.argv[1:]) or "Say hello.", os.getcwd(), os.environ.get("MCODE_MODEL", "")))
