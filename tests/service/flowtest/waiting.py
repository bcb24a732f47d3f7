"""Waiting for a condition with a deadline; never sleeping for luck."""
import os
import time

#: Stretches every deadline on a machine that is busy with other things.
PATIENCE = float(os.environ.get("FLOW_PATIENCE", "1"))


class Deadline(AssertionError):
    """A condition did not come true in time."""


def wait_for(what, probe, seconds=30.0, every=0.05):
    """Calls `probe` until it answers something true, and gives that; `what` may be a text or a function."""
    end = time.monotonic() + seconds * PATIENCE
    while True:
        answer = probe()
        if answer:
            return answer
        if time.monotonic() > end:
            raise Deadline(f"after {seconds * PATIENCE:g} s: {what() if callable(what) else what}")
        time.sleep(every)
