"""deploy/k8s: valid, and its labels, ports, probes, times and names fit one another and the config."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jsonschema
import pytest
import yaml
from deployed import DEPLOY, Dockerfile, example_environment, services, variables
from doubles import replies
from doubles.rawclient import call

from gateway.config.load import load

K8S = DEPLOY / "k8s"
KUSTOMIZATION = yaml.safe_load((K8S / "kustomization.yaml").read_text(encoding="utf-8"))
RESOURCES = [
    one for file in KUSTOMIZATION["resources"] for one in yaml.safe_load_all((K8S / file).read_text(encoding="utf-8"))
]
NAMED = {(one["kind"], one["metadata"]["name"]): one for one in RESOURCES}
PODS = {name: one["spec"] for (kind, name), one in NAMED.items() if kind in ("Deployment", "StatefulSet")}
ENVIRON = example_environment(K8S / ".env.example") | {"SLUICE_KEY": "k-12345678", "SLUICE_ADMIN_KEY": "a-12345678"}
CONFIG = load(K8S / "sluice.yaml", ENVIRON).config
assert CONFIG is not None
SCHEMA = json.loads((Path(__file__).parent / "kubernetes-1.37.json").read_text(encoding="utf-8"))
ENGINES = {name: one for name, one in CONFIG.upstreams.items() if one.kind == "vllm"}


def kinds(kind: str) -> dict[str, Any]:
    """The specs of every resource of a kind, by name."""
    return {name: one["spec"] for (its, name), one in NAMED.items() if its == kind}


def container(pod: str) -> Any:
    """The only container of a workload."""
    (one,) = PODS[pod]["template"]["spec"]["containers"]
    return one


def ports(pod: str) -> dict[str, int]:
    """The named ports of a workload."""
    return {one["name"]: one["containerPort"] for one in container(pod)["ports"]}


def labels(pod: str) -> dict[str, str]:
    """The labels of a workload's pods."""
    return PODS[pod]["template"]["metadata"]["labels"]


def selected(selector: dict[str, Any]) -> str:
    """The workload whose pods these labels match."""
    wanted = selector.get("matchLabels", selector)
    (one,) = (pod for pod in PODS if wanted.items() <= labels(pod).items())
    return one


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda one: f"{one['kind']}-{one['metadata']['name']}")
def test_it_is_what_kubernetes_allows(resource: dict[str, Any]) -> None:
    group, _, version = resource["apiVersion"].rpartition("/")
    group = group.partition(".")[0] or "core"
    root = {"$ref": f"#/$defs/io.k8s.api.{group}.{version}.{resource['kind']}"}
    errors = jsonschema.Draft202012Validator(SCHEMA | root).iter_errors(resource)
    assert [f"{error.json_path}: {error.message}" for error in errors] == []


def test_every_file_is_applied() -> None:
    assert {*KUSTOMIZATION["resources"], "kustomization.yaml", "sluice.yaml"} == {
        one.name for one in K8S.glob("*.yaml")
    }
    assert KUSTOMIZATION["namespace"] in kinds_of("Namespace")
    (config,), (keys,) = KUSTOMIZATION["configMapGenerator"], KUSTOMIZATION["secretGenerator"]
    assert (config["files"], keys["envs"]) == (["sluice.yaml"], [".env"])


def kinds_of(kind: str) -> set[str]:
    """The names of the resources of a kind."""
    return {name for its, name in NAMED if its == kind}


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kubectl_puts_it_together(tmp_path: Path) -> None:
    folder = tmp_path / "k8s"
    shutil.copytree(K8S, folder)
    shutil.copy(folder / ".env.example", folder / ".env")
    done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    made = {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(done.stdout)}
    assert NAMED.keys() < made.keys()
    assert ("ConfigMap", "sluice-config") in made
    (secret,) = (name for kind, name in made if kind == "Secret")
    # Each reference has been given the suffix too.
    assert done.stdout.count(f"name: {secret}") == 1 + sum(len(secrets(pod)) for pod in PODS)


def secrets(pod: str) -> dict[str, str]:
    """The variables of a workload that come from the Secret, each with its key there."""
    (keys,) = KUSTOMIZATION["secretGenerator"]
    found = {}
    for one in container(pod).get("env", []):
        if "valueFrom" in one:
            assert one["valueFrom"]["secretKeyRef"]["name"] == keys["name"]
            found[one["name"]] = one["valueFrom"]["secretKeyRef"]["key"]
    return found


def test_the_secret_has_what_the_pods_take_from_it_and_no_more() -> None:
    taken = {key for pod in PODS for key in secrets(pod).values()}
    assert taken == set(example_environment(K8S / ".env.example"))
    assert set(secrets("gateway")) == variables(K8S / "sluice.yaml")


def test_selectors_match_the_pods_that_they_mean() -> None:
    for pod, spec in PODS.items():
        assert selected(spec["selector"]) == pod
    for kind, key in (
        ("Service", "selector"),
        ("PodDisruptionBudget", "selector"),
        ("NetworkPolicy", "podSelector"),
    ):
        for name, spec in kinds(kind).items():
            assert selected(spec[key]) == name
    for name, spec in kinds("HorizontalPodAutoscaler").items():
        target = spec["scaleTargetRef"]
        assert target["name"] == name
        assert NAMED[target["kind"], name]["apiVersion"] == target["apiVersion"]
        assert "replicas" not in PODS[name], "an apply would fight the autoscaler"
    for pod, spec in PODS.items():
        assert spec.get("serviceName", pod) in kinds("Service")


def test_ports_are_called_by_names_that_exist() -> None:
    for name, spec in kinds("Service").items():
        assert {one["targetPort"] for one in spec["ports"]} <= ports(name).keys()
    for name, spec in kinds("NetworkPolicy").items():
        assert {one["port"] for rule in spec["ingress"] for one in rule["ports"]} == ports(name).keys()
    for pod in PODS:
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            asked = container(pod).get(probe, {})
            port = asked.get("httpGet", asked.get("tcpSocket", {})).get("port")
            assert port is None or port in ports(pod)


def test_the_gateways_ports_are_those_of_its_config_and_the_admin_port_is_in_no_service() -> None:
    assert ports("gateway") == {"http": CONFIG.server.port, "admin": CONFIG.admin.port}
    assert [one["targetPort"] for one in kinds("Service")["gateway"]["ports"]] == ["http"]
    (admin,) = (rule for rule in kinds("NetworkPolicy")["gateway"]["ingress"] if {"port": "admin"} in rule["ports"])
    assert admin["from"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container("gateway")[probe]["httpGet"]["port"] == "admin"


def test_a_drain_fits_into_the_grace_period_and_outlasts_the_probes() -> None:
    drain, pod = CONFIG.server.drain, PODS["gateway"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] >= drain.delay + drain.timeout + 6
    assert "lifecycle" not in container("gateway")
    ready = container("gateway")["readinessProbe"]
    assert drain.delay > ready["periodSeconds"] * ready["failureThreshold"]


def test_the_engine_has_the_time_to_finish_what_it_has_begun() -> None:
    (given,) = (
        int(one.partition("=")[2]) for one in container("engine")["args"] if one.startswith("--shutdown-timeout=")
    )
    assert PODS["engine"]["template"]["spec"]["terminationGracePeriodSeconds"] > given
    assert given >= CONFIG.server.drain.timeout


@pytest.mark.parametrize("pod", PODS)
def test_pods_may_do_no_more_than_they_must(pod: str) -> None:
    spec, own = PODS[pod]["template"]["spec"], container(pod)["securityContext"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert own["allowPrivilegeEscalation"] is False
    assert own["capabilities"] == {"drop": ["ALL"]}
    if pod != "engine":  # vLLM's own image, as in compose.gpu.yml
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert own["readOnlyRootFilesystem"] is True
    assert container(pod)["resources"]["limits"]["memory"]
    mounted = {one["name"] for one in container(pod)["volumeMounts"]}
    claims = {one["metadata"]["name"] for one in PODS[pod].get("volumeClaimTemplates", [])}
    assert mounted == claims | {one["name"] for one in spec.get("volumes", [])}


def test_images_are_those_of_the_compose_files() -> None:
    composed = services()
    assert container("redis")["image"] == composed["redis"]["image"]
    assert container("engine")["image"] == composed["engine-gpu"]["image"]
    (own,) = KUSTOMIZATION["images"]
    assert container("gateway")["image"] == own["name"]
    user = Dockerfile(DEPLOY / "Dockerfile").last("USER")
    context = PODS["gateway"]["template"]["spec"]["securityContext"]
    assert user == f"{context['runAsUser']}:{context['runAsGroup']}"


def test_the_gateway_reads_the_config_where_its_image_says() -> None:
    image = Path(Dockerfile(DEPLOY / "Dockerfile").environment()["SLUICE_CONFIG"])
    mounted = {one["name"]: one for one in container("gateway")["volumeMounts"]}
    assert Path(mounted["config"]["mountPath"]) == image.parent
    assert "subPath" not in mounted["config"]
    assert image.name == "sluice.yaml"
    volumes = {one["name"]: one for one in PODS["gateway"]["template"]["spec"]["volumes"]}
    (generated,) = KUSTOMIZATION["configMapGenerator"]
    assert volumes["config"]["configMap"]["name"] == generated["name"]


def test_every_engine_that_the_autoscaler_may_start_is_an_upstream() -> None:
    scaler = kinds("HorizontalPodAutoscaler")["engine"]
    service = PODS["engine"]["serviceName"]
    assert [str(one.base_url) for one in ENGINES.values()] == [
        f"http://engine-{number}.{service}:{ports('engine')['http']}/v1" for number in range(scaler["maxReplicas"])
    ]
    (model,) = (one.partition("=")[2] for one in container("engine")["args"] if one.startswith("--model="))
    assert [(one.upstream, one.model) for one in CONFIG.models["small"].candidates] == [
        (name, model) for name in ENGINES
    ]


def test_redis_is_where_the_config_looks_for_it() -> None:
    url = urlsplit(CONFIG.redis.url.reveal())
    assert (url.hostname, url.port) == ("redis", ports("redis")["redis"])
    assert CONFIG.usage.store == "redis"  # replicas share one account


def test_the_autoscalers_metric_is_the_one_that_the_adapter_makes() -> None:
    values = yaml.safe_load((K8S / "monitoring/prometheus-adapter.yaml").read_text(encoding="utf-8"))
    (rule,) = values["rules"]["external"]
    (metric,) = kinds("HorizontalPodAutoscaler")["engine"]["metrics"]
    assert metric["external"]["metric"]["name"] == rule["name"]["as"]
    (pattern,) = set(re.findall(r'upstream=~"([^"]+)"', rule["seriesQuery"] + rule["metricsQuery"]))
    assert [name for name in CONFIG.upstreams if re.fullmatch(pattern, name)] == list(ENGINES)
    monitors = yaml.safe_load_all((K8S / "monitoring/pods.yaml").read_text(encoding="utf-8"))
    for one in monitors:
        pod = selected(one["spec"]["selector"])
        assert {endpoint["port"] for endpoint in one["spec"]["podMetricsEndpoints"]} <= ports(pod).keys()


async def test_replicas_that_are_not_there_cost_no_call(start_gateway, upstream) -> None:
    """Of the engines that the config names, two run: no client notices that the others do not."""
    config = yaml.safe_load((K8S / "sluice.yaml").read_text(encoding="utf-8").replace("${OPENAI_API_KEY:-}", "sk-1"))
    for number, one in enumerate(config["upstreams"].values()):
        one["base_url"] = upstream.url if number < 2 else "http://127.0.0.1:1/v1"
    config["server"] |= {"host": "127.0.0.1", "port": 0, "drain": {}}
    config |= {"admin": {"port": 0}, "redis": None, "usage": {"store": "off"}, "keys": []}
    # Before the first call the gateway looks whether an engine takes batches; these do not.
    upstream.always(lambda call: replies.ordinary(call) if call.body else replies.error(404))
    gateway = await start_gateway(config)
    for _ in range(40):
        answer = await call(gateway.port, "POST", "/v1/chat/completions", {"model": "small", "messages": []})
        assert answer.status == 200
    metrics = await gateway.metrics()
    failed = metrics.value("sluice_upstream_attempts_total", result="retryable")
    assert failed <= 2 * CONFIG.upstreams["engine-0"].breaker.failures
