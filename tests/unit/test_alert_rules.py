"""The alert rules that are shipped: those of the health checks, valid for
Prometheus, and firing on what export serves.
"""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from rankdeck_agent.rules.coverage import check_names
from tests.support.alert_rules import alerts, document

SHIPPED = Path(__file__).resolve().parents[2] / "docs/prometheus/alerts.yaml"
DEVICE = "3"


def rows() -> "list[dict[str, dict[str, str] | str]]":
    return yaml.safe_load(SHIPPED.read_text(encoding="utf-8"))["groups"][0]["rules"]


def test_the_shipped_file_is_that_of_the_checks() -> None:
    assert SHIPPED.read_text(encoding="utf-8") == document(), "`make man` writes it"


def test_every_check_has_an_alert_with_something_to_do() -> None:
    known = {alert.check for alert in alerts()}
    beside = {"node.ssh"}  # a broken login is no state of the node, which is heard

    assert set(check_names()) - known <= beside
    assert all(alert.words.action or alert.words.means for alert in alerts())
    assert not any(mark in document() for mark in ("{device}", "{value}", "{note}", "{span}"))


def promtool() -> str:
    found = shutil.which("promtool")
    if not found:
        pytest.skip("no promtool on this machine (Debian: prometheus)")
    return found


def filled(text: str, node: str) -> str:
    return text.replace("{{ $labels.instance }}", node).replace("{{ $labels.device }}", DEVICE)


def test_promtool_accepts_them_and_each_fires_alone(tmp_path) -> None:
    tool = promtool()
    checked = subprocess.run([tool, "check", "rules", str(SHIPPED)], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr

    series: list[dict[str, str]] = []
    expected: dict[str, list[object]] = {}
    for number, (alert, row) in enumerate(zip(alerts(), rows(), strict=True)):
        # A node for each alert: one check may be at one level only.
        node = f"n{number}"
        name = f'rankdeck_check{{instance="{node}",check="{alert.check}",device="{DEVICE}"}}'
        series.append({"series": name, "values": f"{int(alert.level)} {int(alert.level)}"})
        expected.setdefault(row["alert"], []).append({
            "exp_labels": {**row["labels"], "instance": node, "device": DEVICE},
            "exp_annotations": {k: filled(v, node) for k, v in row["annotations"].items()},
        })  # fmt: skip
    tests = [{
        "interval": "1m",
        "input_series": series,
        "alert_rule_test": [
            {"eval_time": "1m", "alertname": name, "exp_alerts": fired}
            for name, fired in expected.items()
        ],
    }]  # fmt: skip
    made = tmp_path / "tests.yaml"
    made.write_text(json.dumps({"rule_files": [str(SHIPPED)], "tests": tests}))
    tried = subprocess.run([tool, "test", "rules", str(made)], capture_output=True, text=True)

    assert tried.returncode == 0, (tried.stdout + tried.stderr)[:4000]
