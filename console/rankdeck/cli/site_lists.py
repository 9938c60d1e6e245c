"""`rankdeck nodes --import`: a cluster file from a list of nodes that the site has already."""

import re
from pathlib import Path

from rankdeck.cli import output
from rankdeck.cli.choose import read_file_or_stdin
from rankdeck.cli.output import UsageError
from rankdeck.config.document import write_documents
from rankdeck.config.node_sources import has_ansible, read_ansible_inventory
from rankdeck.config.site_lists import FORMATS, SiteList, read_site_list
from rankdeck.model.nodeset import fold_nodes

_MOST = 16 << 20


def _is_ansibles(found: SiteList, text: str) -> bool:
    return found.format == "ansible" or (found.format == "yaml" and "hosts:" in text)


def import_nodes(named: str, form: str) -> int:
    """Print a cluster file with the nodes of the list in this file
    (`-`: stdin); returns the exit code.

    `form` is a key of FORMATS, or "": seen from the text. What a cluster file cannot say goes
    to stderr. Raises ConfigError and UsageError.
    """
    if form and form not in FORMATS:
        raise UsageError(f"--format: `{form}` is none of {', '.join(FORMATS)}")
    try:
        text = read_file_or_stdin(named, _MOST).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{named}: not UTF-8: byte 0x{error.object[error.start]:02x}") from error
    found = read_site_list(Path("stdin" if named == "-" else named), text, form)
    if named != "-" and _is_ansibles(found, text) and has_ansible():
        found = read_ansible_inventory(Path(named))
    cluster = re.sub(r"[^A-Za-z0-9._-]", "", Path(named).stem).lstrip("._-")[:40] or "site"
    output.print_text(write_documents([found.cluster_table(cluster)]).rstrip("\n"))
    many = f"{len(found.nodes):,} node{'s' * (len(found.nodes) != 1)}"
    output.print_progress(
        f"{named}: {many}, read as {FORMATS[found.format].words} (--format names another)"
    )
    if len(found.users) > 1:
        for user in found.users:
            names = fold_nodes(node.name for node in found.nodes if node.user == user)
            output.print_progress(
                f"{names}: the list logs in as {user}: say so by `User` in ~/.ssh/config"
            )
    return output.OK
