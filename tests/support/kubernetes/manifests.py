"""Small manifests for tests of the Kubernetes double."""

Json = dict


def indexed_job(name: str, command: list[str], ranks: int = 2, *, grace: int = 2, **more) -> Json:
    """An Indexed Job whose container `main` runs a command; `more` goes into the pod's spec."""
    container = {"name": "main", "image": "x", "command": command}
    gpus = more.pop("gpus", 0)
    if gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
    pod = {
        "restartPolicy": "Never",
        "subdomain": name,
        "terminationGracePeriodSeconds": grace,
        "containers": [container | more.pop("container", {})],
        **more,
    }
    spec = {"completionMode": "Indexed", "completions": ranks, "parallelism": ranks}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {"rankdeck/job": name}},
        "spec": {**spec, "backoffLimit": 0, "template": {"spec": pod}},
    }


def service(name: str) -> Json:
    """The headless Service of an Indexed Job."""
    selector = {"batch.kubernetes.io/job-name": name}
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": selector}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def config_map(name: str, data: dict[str, str]) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
