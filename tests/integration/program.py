"""Common part of the daemon, the gateway and the peer when they run in a test."""

import re
import signal
import subprocess
import time

from peer import DEADLINE

SANITIZER = re.compile(
    r"(ERROR: (Address|Leak|Memory)Sanitizer|runtime error:|WARNING: ThreadSanitizer|"
    r"ERROR SUMMARY: [1-9])"
)


class Program:
    """One that runs and writes a log: `process`, `stderr_path`."""

    def stderr(self):
        with open(self.stderr_path, errors="replace") as file:
            return file.read()

    def wait_for(self, pattern, count=1):
        """Waits until the log has the text that many times."""
        end = time.monotonic() + DEADLINE
        while time.monotonic() < end:
            found = list(re.finditer(pattern, self.stderr()))
            if len(found) >= count:
                return found[-1]
            assert self.process.poll() is None, self.stderr()
            time.sleep(0.005)
        raise AssertionError((pattern, self.stderr()))

    def stop(self, status=0):
        """SIGTERM; expects the exit status, which it returns, and no word of a sanitizer."""
        self.process.send_signal(signal.SIGTERM)
        try:
            got = self.process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"{self.process.args} does not stop on SIGTERM") from None
        text = self.stderr()
        assert not SANITIZER.search(text), text[-8000:]
        assert got == status, (got, text[-4000:])
        return got

    def kill(self):
        """Ends it at once, without any check; for clearing up."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
