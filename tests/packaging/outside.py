"""Commands as a user gives them: without what sanitizers and make have put into the tests' environment."""

import os
import subprocess

GONE = ("LD_PRELOAD", "PYTHONPATH", "ASAN_OPTIONS", "UBSAN_OPTIONS", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in GONE}


def run(*command, **options):
    """The process once it has ended well."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=900, check=False,
                          **{"env": ENVIRONMENT, **options})
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done
