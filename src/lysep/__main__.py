"""`python -m lysep`, which is `lysep` where the package is not installed."""

import sys

from lysep.cli import main

if __name__ == "__main__":
    sys.exit(main())
