"""The command line: ``arclight`` and ``python -m arclight``."""

import signal
import sys

from arclight import _native


def main() -> int:
    """Runs the command line; its exit code."""
    # The program has its own ways with Ctrl-C; Python's would wait until it has ended.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _native.main(["arclight", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
