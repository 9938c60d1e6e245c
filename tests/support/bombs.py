"""Hostile files, and how the error message for each begins: line, column, place, mistake."""

HEAD = "job: x\nlaunch: plain\ncommand: [a]\n"
LAUGHS = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n"
    for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
DEEP = "nested too deeply: more than 32 levels"

TEXTS: dict[str, tuple[bytes, str]] = {
    "aliases that multiply": (LAUGHS.encode(), "1:1: file: more than 100000 entries"),
    "an alias of itself": (b"a: &x [*x]\n", "1:1: file: more than 100000 entries"),
    # Whether PyYAML's scanner or our limit stops first depends on the version of PyYAML.
    "brackets without end": (b"[" * 500_000, "1:"),
    "brackets on lines without end": (b"[\n" * 250_000, f"33:1: file: not YAML: {DEEP}"),
    "dashes without end": (b"- " * 400_000, f"1:65: file: not YAML: {DEEP}"),
    "tables in tables": (b"{a: " * 200_000, f"1:126: file: not YAML: {DEEP}"),
    "too many entries": (b"a: [" + b"1," * 300_000 + b"]", "1:199999: file: not YAML: more than 100000 entries"),
    "a key given twice": (HEAD.encode() + b"job: y\n", "4:1: file: `job` is given twice; first on line 1"),
    "keys without end": (b"job: x\n" * 40_000, "2:1: file: `job` is given twice"),
    "unknown keys without end": (b"".join(b"k%d: 1\n" % n for n in range(40_000)), "1:1: file: this is no job file or cluster file"),
    "UTF-16": (b"\xff\xfe" + HEAD.encode("utf-16-le"), "1:1: file: not UTF-8: UTF-16; save it as UTF-8"),
    "UTF-16 without a mark": (HEAD.encode("utf-16-le"), "1:2: file: not text: a NUL character"),
    "Latin-1": (b"job: x\n# caf\xe9\n", "2:6: file: not UTF-8: byte 0xe9"),
    "NUL bytes": (b"job: x\nlaunch: \0\n", "2:9: file: not text: a NUL character"),
    "50 MB": (b"# " + b"x" * 50_000_000, "1:1: file: cannot be read: larger than 1024 KiB"),
    "a tab": (b"job: x\nabort:\n\tenabled: true\n", "3:1: file: not YAML: a tab; indent with spaces"),
    "a node set of brackets": (b"cluster: c\nnodes: ['" + b"[" * 900_000 + b"']\n", "2:9: nodes[0]: a node set of more than 4000 characters"),
    "a number of 500 digits": (b"job: x\nnodes: " + b"9" * 500 + b"\n", "1:1: file: `launch` is missing: mpi, torchrun, tensorflow, jax or plain"),
    "a word of a megabyte": (b"? " + b"a" * 900_000 + b"\n: 1\n", "1:1: file: this is no job file or cluster file"),
    "a name with a quote": (b"job: \"x'y\"\nlaunch: plain\ncommand: [a]\n", "1:6: job: `x'y` is not letters"),
    "a name that a shell would run": (b"job: '$(touch X)'\nlaunch: plain\ncommand: [a]\n", "1:6: job: `$(touch X)` is not letters"),
    "a name of two lines": (b'job: "x\\ny"\nlaunch: plain\ncommand: [a]\n', "1:6: job: `x\N{REPLACEMENT CHARACTER}y` is not letters"),
    "a name with a dash before": (b"job: -rf\nlaunch: plain\ncommand: [a]\n", "1:6: job: `-rf` is not letters"),
    "a name that goes up": (b"job: ../x\nlaunch: plain\ncommand: [a]\n", "1:6: job: `../x` is not letters"),
    "a file that goes up": (HEAD.encode() + b"files: {../x: text}\n", "4:15: files.../x: `../x` is not a path inside the run folder"),
}  # fmt: skip

NODE_SETS = ("@'; touch X; '", "@up:$(touch X)", "@`touch X`", "n1,@*", "@up:;touch X;[1-2]")
UPCALLS = "[Main]\ndefault: up\n[up]\nmap: echo $GROUP\nall: touch X\nlist: touch X\n"
