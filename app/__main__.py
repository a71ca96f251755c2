"""`python -m app` is `gpudeck`."""

import sys

from app.cli.main import main

sys.exit(main())
