"""The manual page of `rankdeck`, from the options of its verbs: `python -m
tests.support.manual FILE` (`make man`).
"""

import os
import re
import sys
from pathlib import Path
from unittest.mock import patch

from argparse_manpage.manpage import Manpage

from rankdeck.cli.parser import make_parser
from rankdeck_agent import __version__

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "rankdeck.1"


def manual() -> str:
    """The page in the language of man."""
    data = {
        "prog": "rankdeck",
        "project_name": "rankdeck",
        "version": __version__,
        "description": "console of a GPU or HPC cluster in a terminal",
        "manual_title": "Rankdeck",
    }
    with patch.dict(os.environ, COLUMNS="80"):  # argparse folds the usage at the terminal's width
        page = str(Manpage(make_parser(), _data=data))
    # Without the day on which it was made: the page changes only with the options.
    return re.sub(r'(\.TH RANKDECK "1") "[^"]*"', r'\1 ""', page, count=1)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(manual())
