"""A Kerberos realm on loopback with MIT's own programs, in a private folder:
its KDC, one user, and a server's keytab.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.polling import wait_until
from tests.support.ports import free_port
from tests.support.programs import UNPACKED, search_path

REALM, PASSWORD = "LAB.TEST", "kerberos"
_PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")
_CLIENT = """\
[libdefaults]
 default_realm = {realm}
 dns_lookup_kdc = false
 dns_lookup_realm = false
 dns_canonicalize_hostname = false
 rdns = false
[realms]
 {realm} = {{
  kdc = 127.0.0.1:{port}
 }}
"""
_SERVER = """\
[kdcdefaults]
 kdc_listen = 127.0.0.1:{port}
 kdc_tcp_listen = 127.0.0.1:{port}
[realms]
 {realm} = {{
  database_name = {folder}/principal
  key_stash_file = {folder}/stash
 }}
[dbmodules]
 db_module_dir = {modules}
[logging]
 default = FILE:{folder}/log
"""


def missing() -> str:
    """Which program is missing; "" if none."""
    found = [one for one in _PROGRAMS if not shutil.which(one, path=search_path())]
    return f"no {found[0]} (krb5-kdc, krb5-admin-server, krb5-user)" if found else ""


@dataclass(frozen=True)
class Realm:
    folder: Path
    environment: Mapping[str, str]
    """For its programs."""

    @property
    def config(self) -> Path:
        return self.folder / "krb5.conf"

    @property
    def keytab(self) -> Path:
        return self.folder / "keytab"

    @property
    def tickets(self) -> str:
        """The value of KRB5CCNAME."""
        return f"FILE:{self.folder}/tickets"

    def run(self, *words: str, typed: str = "") -> None:
        subprocess.run(words, env=self.environment, input=typed, text=True, check=True, capture_output=True)  # fmt: skip

    def log_in(self, user: str) -> None:
        """Get a ticket for a user of the realm."""
        self.run("kinit", user, typed=f"{PASSWORD}\n")


@contextmanager
def realm(folder: Path, user: str, host: str) -> Iterator[Realm]:
    """A realm with this user and a server of this name, until the end of the block."""
    port = free_port()
    modules = next((str(one) for one in UNPACKED.glob("krb5-kdc/usr/lib/*/krb5/plugins/kdb")), "")
    modules = modules or next(map(str, Path("/usr/lib").glob("*/krb5/plugins/kdb")), "/nowhere")
    words = {"realm": REALM, "port": port, "folder": folder, "modules": modules}
    (folder / "krb5.conf").write_text(_CLIENT.format(**words))
    (folder / "kdc.conf").write_text(_SERVER.format(**words))
    environment = {
        **os.environ,
        "PATH": search_path(),
        "LD_LIBRARY_PATH": str(_libraries(folder)),
        "KRB5_CONFIG": str(folder / "krb5.conf"),
        "KRB5_KDC_PROFILE": str(folder / "kdc.conf"),
        "KRB5CCNAME": f"FILE:{folder}/tickets",
    }
    made = Realm(folder, environment)
    made.run("kdb5_util", "create", "-s", "-P", "master", "-r", REALM)
    made.run("kadmin.local", "-q", f"addprinc -pw {PASSWORD} {user}")
    made.run("kadmin.local", "-q", f"addprinc -randkey host/{host}")
    made.run("kadmin.local", "-q", f"ktadd -k {made.keytab} host/{host}")
    kdc = subprocess.Popen(["krb5kdc", "-n"], env=environment, stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: "commencing operation" in _log(folder) or kdc.poll() is not None, 60)
        assert kdc.poll() is None, _log(folder)
        yield made
    finally:
        kdc.terminate()
        kdc.wait(60)


def _libraries(folder: Path) -> Path:
    """A folder with the unpacked libraries of Kerberos: one of them
    looks for its parts beside itself.
    """
    found = folder / "lib"
    found.mkdir()
    for library in UNPACKED.glob("lib*/usr/lib/*-linux-gnu/*.so*"):
        (found / library.name).symlink_to(library.resolve())
    return found


def _log(folder: Path) -> str:
    file = folder / "log"
    return file.read_text() if file.exists() else ""
