"""Run GPU Deck: `gpudeck`, or `python -m gpudeck`."""

# the module signal takes 4 ms to import, in which Ctrl+C would print a traceback
import _signal as signal  # type: ignore[import-not-found]
import sys


def run() -> int:
    """Run the command line, and return its exit status.

    Ctrl+C ends the process without a word before a command begins and after it has ended: a
    KeyboardInterrupt in an import would print a traceback, and may crash a module half loaded.
    """
    answers = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if answers:  # otherwise it is ignored, as with nohup
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from gpudeck.app.cli.main import main

    try:
        return main()
    finally:
        if answers:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    sys.exit(run())
