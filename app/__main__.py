"""`python -m app` is `gpudeck`."""

import sys

from app.cli import main

sys.exit(main())
