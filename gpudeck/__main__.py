"""Run `gpudeck` as `python -m gpudeck`."""

import sys

from gpudeck.app.cli.main import main

sys.exit(main())
