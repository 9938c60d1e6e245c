"""`python -m rankdeck_simulator`: play the agents of many nodes; see `fleet`."""

import sys

from rankdeck_simulator.fleet import main

if __name__ == "__main__":
    sys.exit(main())
