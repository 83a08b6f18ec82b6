"""Runs the example against the daemon at MCODE_SOCKET with the built-in scripted model: `python test_example.py`."""

import pathlib
import subprocess
import tempfile
import unittest

import example
import scripting
from mcode_client import Client, daemon, socket_path, threads

GREET = """#!/bin/sh
# Prints a greeting for each name.
greet() { printf 'Helo, %s!\\n' "$1"; }
for name in "$@"; do greet "$name"; done
"""
TEST = """#!/bin/sh
# The test of greet.sh.
want='Hello, Ada!'
got=$(sh ./greet.sh Ada)
if [ "$got" = "$want" ]; then echo "ok: $got"; else echo "FAILED: want '$want', got '$got'"; exit 1; fi
"""


class ExampleTest(unittest.TestCase):
    def test_a_run_is_started_streamed_approved_and_read(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "greet.sh").write_text(GREET)
            (root / "test.sh").write_text(TEST)
            subprocess.run(["git", "init", "-q", folder], check=True)
            prompt = "The test fails. Find the bug, mend it, and run the test."
            text = example.main(prompt, folder, "demo/scripted")
            self.assertTrue(text.strip())
            self.assertEqual(subprocess.run(["sh", "test.sh"], cwd=folder).returncode, 0)
            with Client(socket_path()) as client:
                told = scripting.look_after(client, folder, "bug")
            self.assertIn("user", told["found"])
            self.assertEqual(told["tags"], ["tried"])
            self.assertGreater(told["dropped"], 0)
            self.assertEqual([depth for _, depth in told["tree"]], [0, 1])
            self.assertEqual(told["tree"][1][0], "another way")
            self.assertIn(prompt, told["markdown"])
            self.assertGreaterEqual(told["checkpoints"], 2)
            self.assertIn("greet.sh", told["diff"])
            self.assertEqual(told["restored"], [("greet.sh", "changed")])
            self.assertEqual((root / "greet.sh").read_text(), GREET, "it is what it was")
            self.assertEqual(told["plans"], [])

    def test_the_daemon_tells_about_itself_and_its_threads(self):
        with Client(socket_path()) as client:
            self.assertGreaterEqual(client.daemon.GetInfo(daemon.GetInfoRequest(), timeout=30).api_level, 1)
            client.threads.ListThreads(threads.ListThreadsRequest(page_size=1), timeout=30)


if __name__ == "__main__":
    unittest.main()
