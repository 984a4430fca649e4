"""`python -m gpubufd serve [OPTION...]` runs the daemon, supervised; with other words it is gpubufctl."""

import os
import sys

from ._start import program

words = sys.argv[1:]
serve = words[:1] == ["serve"]
path = program("gpubufd" if serve else "gpubufctl")
if words in (["--help"], ["-h"], []):
    print("python -m gpubufd serve [OPTION]… runs the daemon (`serve --help`); with other words it is gpubufctl:\n", flush=True)
os.execv(path, [path, "--supervise", *words[1:]] if serve else [path, *words])
