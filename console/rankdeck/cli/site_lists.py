"""`rankdeck nodes --import`: a cluster file from a list of nodes that the site has already."""

import re
from pathlib import Path

from rankdeck.cli import output
from rankdeck.cli.choose import read_file_or_stdin
from rankdeck.cli.output import UsageError
from rankdeck.config.document import write_documents
from rankdeck.config.node_sources import NO_FOLDER, has_ansible, read_ansible_inventory
from rankdeck.config.site_lists import ANSIBLE_PLUGIN, FORMATS, SiteList, read_site_list
from rankdeck.model.nodeset import fold_nodes
from rankdeck.model.safe_text import clean_line

_MOST = 16 << 20


def _read(named: str, form: str) -> SiteList:
    file = Path(named)
    if file.is_dir():
        if not has_ansible():
            raise UsageError(f"{named}: {NO_FOLDER}")
        return read_ansible_inventory(file)
    try:
        text = read_file_or_stdin(named, _MOST).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{named}: not UTF-8: byte 0x{error.object[error.start]:02x}") from error
    if named == "-":
        return read_site_list(Path("stdin"), text, form)
    if ANSIBLE_PLUGIN.search(text) and has_ansible():
        return read_ansible_inventory(file)
    found = read_site_list(file, text, form)
    by_ansible = found.format == "ansible" or (found.format == "yaml" and "hosts:" in text)
    if by_ansible and has_ansible():
        return read_ansible_inventory(file)
    if by_ansible:
        _tell_unread(file)
    return found


def _tell_unread(file: Path) -> None:
    """Name the folders beside an inventory that only Ansible reads."""
    for name in ("group_vars", "host_vars"):
        if (file.absolute().parent / name).is_dir():
            output.print_progress(
                f"{name} beside {file} is not read: ansible-inventory reads it, and is not installed here"
            )


def import_nodes(named: str, form: str) -> int:
    """Print a cluster file with the nodes of the list in this file
    (`-`: stdin); returns the exit code.

    `form` is a key of FORMATS, or "": seen from the text. What a cluster file cannot say goes
    to stderr. Raises ConfigError and UsageError.
    """
    if form and form not in FORMATS:
        raise UsageError(f"--format: `{form}` is none of {', '.join(FORMATS)}")
    found = _read(named, form)
    cluster = re.sub(r"[^A-Za-z0-9._-]", "", Path(named).stem).lstrip("._-")[:40] or "site"
    output.print_text(write_documents([found.cluster_table(cluster)]).rstrip("\n"))
    many = f"{len(found.nodes):,} node{'s' * (len(found.nodes) != 1)}"
    output.print_progress(
        f"{named}: {many}, read as {FORMATS[found.format].words} (--format names another)"
    )
    for words, names in _not_carried(found).items():
        output.print_progress(f"{fold_nodes(names)}: {words}")
    return output.OK


def _not_carried(found: SiteList) -> dict[str, list[str]]:
    """What a cluster file cannot say of some nodes only, and their names."""
    told: dict[str, list[str]] = {}
    for node in found.nodes:
        if node.user and "user" not in found.access:
            words = f"the list logs in as {node.user}: say so by `User` in ~/.ssh/config"
            told.setdefault(words, []).append(node.name)
        if node.identity and "identity" not in found.access:
            words = f"the list's key is {node.identity}: say so by `IdentityFile` in ~/.ssh/config"
            told.setdefault(words, []).append(node.name)
        if node.lost:
            told.setdefault(node.lost, []).append(node.name)
    return {clean_line(words, 300): names for words, names in told.items()}
