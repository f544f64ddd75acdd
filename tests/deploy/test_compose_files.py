"""deploy/compose*.yml: valid, hardened; each path, port, name and time in them agrees with its meaning."""

import json
import re
from pathlib import Path
from urllib.parse import urlsplit

import jsonschema
import pytest
import yaml
from deployed import (
    COMPOSE,
    DEPLOY,
    ENV_EXAMPLE,
    ROOT,
    Dockerfile,
    example_environment,
    read_yaml,
    services,
    variables,
)

from gateway.config.load import load

SERVICES = services()
CONFIG = load(DEPLOY / "config/sluice.yaml", example_environment()).config
assert CONFIG is not None
GATEWAY = SERVICES["gateway"]
# What each image listens on; those that are built say it in their Dockerfile.
LISTENS = {"redis": 6379, "prometheus": 9090, "grafana": 3000, "engine-gpu": 8000, "engine": 8000}
WRITABLE = {"engine-gpu"}  # vLLM's own image, see the comment there


def seconds(text: str) -> int:
    """The seconds of a duration such as `60s`."""
    assert text.endswith("s"), text
    return int(text[:-1])


def dockerfile(service: dict) -> Dockerfile:
    """The Dockerfile that a service is built from."""
    return Dockerfile(DEPLOY / service["build"]["context"] / service["build"]["dockerfile"])


def mounts(service: dict) -> dict[str, str]:
    """Folder inside -> volume or path outside."""
    return {target: source for source, target, *_ in (one.split(":") for one in service.get("volumes", []))}


def reached(host: str, caller: str) -> dict:
    """The service that `host` names for `caller`: by its name or an alias, on a network of both."""
    own = set(SERVICES[caller]["networks"])
    for name, service in SERVICES.items():
        networks = service["networks"]
        if isinstance(networks, list):
            networks = {network: {} for network in networks}
        for network in own & set(networks):
            if host == name or host in networks[network].get("aliases", []):
                return service | {"name": name}
    raise AssertionError(f"{caller} reaches no service named {host}")


@pytest.mark.parametrize("file", COMPOSE, ids=lambda file: file.name)
def test_it_is_what_the_compose_specification_allows(file: Path) -> None:
    schema = json.loads((Path(__file__).parent / "compose-spec.json").read_text(encoding="utf-8"))
    errors = jsonschema.Draft7Validator(schema).iter_errors(read_yaml(file))
    assert [f"{error.json_path}: {error.message}" for error in errors] == []


def test_the_gpu_file_adds_to_the_other_and_changes_nothing_in_it() -> None:
    one, other = (read_yaml(file) for file in COMPOSE)
    assert other["include"] == [COMPOSE[0].name]
    assert one["name"] == other["name"]
    assert not one["services"].keys() & other["services"].keys()


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_is_held_in_bounds(name: str) -> None:
    service = SERVICES[name]
    assert service["restart"] == "unless-stopped"
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service.get("read_only", False) is (name not in WRITABLE)
    assert service["mem_limit"]
    assert service["pids_limit"] > 0
    assert service["logging"]["options"].keys() == {"max-size", "max-file"}
    assert not service.keys() & {"privileged", "cap_add", "network_mode", "pid", "ipc", "devices"}


@pytest.mark.parametrize("name", SERVICES)
def test_every_image_is_of_one_exact_version(name: str) -> None:
    service = SERVICES[name]
    images = dockerfile(service).bases if "build" in service else [service["image"]]
    for image in images:
        assert re.fullmatch(r"[\w./-]+:v?\d+\.\d+\.\d+(-[\w.-]+)?", image), image


def test_the_engines_image_is_the_version_that_the_lock_files_pin() -> None:
    pinned = re.search(r"^vllm==(\S+)$", (ROOT / "backend/engine-cuda.in").read_text(), re.MULTILINE)
    assert pinned is not None
    assert SERVICES["engine-gpu"]["image"] == f"vllm/vllm-openai:v{pinned[1]}"


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_has_a_healthcheck_and_waits_only_for_those_that_do(name: str) -> None:
    service = SERVICES[name]
    assert "healthcheck" in service or dockerfile(service).all("HEALTHCHECK")
    for other, how in service.get("depends_on", {}).items():
        assert how == {"condition": "service_healthy"}
        assert "profiles" not in SERVICES[other], f"{name} could not start without the profile of {other}"


@pytest.mark.parametrize("name", SERVICES)
def test_every_mount_exists_and_no_path_is_written_to(name: str) -> None:
    declared = {volume for file in COMPOSE for volume in read_yaml(file)["volumes"]}
    for one in SERVICES[name].get("volumes", []):
        source, _, how = one.split(":") if one.count(":") == 2 else (*one.split(":"), "rw")
        if source.startswith("."):
            assert (DEPLOY / source).is_dir(), source
            assert how == "ro"
        else:
            assert source in declared
    assert name in WRITABLE or SERVICES[name]["tmpfs"][0].startswith("/tmp:size=")


def test_ports_are_published_on_loopback_only_and_the_admin_port_is_not() -> None:
    published = {name: one["ports"] for name, one in SERVICES.items() if "ports" in one}
    variable = {"gateway": ("SLUICE_PORT", 8080), "grafana": ("GRAFANA_PORT", 3000)}
    assert published == {
        name: [f"127.0.0.1:${{{port}:-{inside}}}:{inside}"] for name, (port, inside) in variable.items()
    }
    assert CONFIG.server.port == 8080
    assert not any("9464" in port for ports in published.values() for port in ports)


def test_networks_keep_redis_for_the_gateway_and_the_inside_from_the_world() -> None:
    networks = read_yaml(COMPOSE[0])["networks"]
    assert {name for name, one in networks.items() if one.get("internal")} == {"inside", "state"}
    on = {network: {name for name, one in SERVICES.items() if network in one["networks"]} for network in networks}
    assert on["state"] == {"gateway", "redis"}
    # Who publishes a port must be on a network that is not internal.
    assert on["front"] == {"gateway", "grafana", "engine-gpu"}
    assert SERVICES["redis"]["networks"] == ["state"]


def test_the_gateway_finds_its_config_and_may_write_its_usage() -> None:
    image = dockerfile(GATEWAY)
    config = Path(image.environment()["SLUICE_CONFIG"])
    source = DEPLOY / mounts(GATEWAY)[str(config.parent)]
    assert (source / config.name).is_file()
    folder = Path(CONFIG.usage.path).parent
    assert mounts(GATEWAY)[str(folder)] in read_yaml(COMPOSE[0])["volumes"]
    owner = image.last("USER").partition(":")[0]
    assert f"install -d -o {owner} -g {owner} -m 0750 {folder}" in " ".join(image.all("RUN"))
    assert str(folder) == image.last("WORKDIR")


def test_the_gateway_is_given_the_variables_that_its_config_names() -> None:
    assert set(GATEWAY["environment"]) == variables(DEPLOY / "config/sluice.yaml")
    for name, value in GATEWAY["environment"].items():
        assert value.startswith(f"${{{name}:")


def test_the_gateway_listens_where_its_healthcheck_and_its_dockerfile_say() -> None:
    assert sorted(map(int, dockerfile(GATEWAY).last("EXPOSE").split())) == [
        CONFIG.server.port,
        CONFIG.admin.port,
    ]
    assert f"'127.0.0.1', {CONFIG.admin.port}," in dockerfile(GATEWAY).command("HEALTHCHECK")[-1]
    assert (CONFIG.server.host, CONFIG.admin.host) == ("0.0.0.0", "0.0.0.0")


def test_the_gateway_has_the_time_that_its_drain_takes() -> None:
    drain = CONFIG.server.drain
    assert seconds(GATEWAY["stop_grace_period"]) >= drain.delay + drain.timeout + 6


def test_what_the_gateway_calls_is_there() -> None:
    redis = urlsplit(CONFIG.redis.url.reveal())
    assert (reached(redis.hostname, "gateway")["name"], redis.port) == ("redis", LISTENS["redis"])
    engine = urlsplit(str(CONFIG.upstreams["engine"].base_url))
    assert engine.port == LISTENS[reached(engine.hostname, "gateway")["name"]]


def test_the_cpu_engine_serves_the_model_and_port_that_the_gateway_asks_for() -> None:
    command = dockerfile(SERVICES["engine"]).command("CMD")
    served = command[command.index("--served-model-name") + 1]
    (candidate,) = CONFIG.models["small"].candidates
    assert candidate.model == served == example_environment()["ENGINE_MODEL"]
    assert command[command.index("--port") + 1] == dockerfile(SERVICES["engine"]).last("EXPOSE") == "8000"
    # Where it may write: a temporary file system.
    assert dockerfile(SERVICES["engine"]).environment()["HOME"] == "/tmp"


def test_the_example_starts_the_cpu_engine_from_the_repositorys_root() -> None:
    example = example_environment()
    assert (ROOT / example["COMPOSE_FILE"]).samefile(COMPOSE[0])
    assert SERVICES["engine"]["profiles"] == [example["COMPOSE_PROFILES"]]
    assert str(CONFIG.upstreams["engine"].base_url) == example["ENGINE_URL"]
    # The paths that comments tell to put there.
    named = re.findall(r"COMPOSE_FILE=([\w./-]+)", ENV_EXAMPLE.read_text() + COMPOSE[1].read_text())
    assert all((ROOT / one).is_file() for one in named)


def test_prometheus_scrapes_what_is_there() -> None:
    service = SERVICES["prometheus"]
    (inside,) = (path for path, source in mounts(service).items() if source == "./prometheus")
    config = read_yaml(DEPLOY / "prometheus/prometheus.yml")
    assert f"--config.file={inside}/prometheus.yml" in service["command"]
    for rules in config["rule_files"]:
        assert Path(rules).parent == Path(inside)
        assert (DEPLOY / "prometheus" / Path(rules).name).is_file()
    jobs = {one["job_name"]: one for one in config["scrape_configs"]}
    ((target,),) = (one["targets"] for one in jobs["sluice"]["static_configs"])
    assert target == f"gateway:{CONFIG.admin.port}"
    assert reached("gateway", "prometheus")
    (engine,) = jobs["engine"]["dns_sd_configs"]
    assert [engine["port"]] == [LISTENS[reached(name, "prometheus")["name"]] for name in engine["names"]]


def test_grafana_asks_prometheus_and_finds_its_dashboards() -> None:
    provisioning = ROOT / "grafana/provisioning"
    inside = {source: path for path, source in mounts(SERVICES["grafana"]).items()}
    sources = [
        one
        for file in sorted((provisioning / "datasources").glob("*.yml"))
        for one in yaml.safe_load(file.read_text(encoding="utf-8"))["datasources"]
        if one["type"] == "prometheus"
    ]
    assert sources
    for one in sources:
        url = urlsplit(one["url"])
        assert url.port == LISTENS[reached(url.hostname, "grafana")["name"]]
    providers = [
        one
        for file in sorted((provisioning / "dashboards").glob("*.yml"))
        for one in yaml.safe_load(file.read_text(encoding="utf-8"))["providers"]
    ]
    assert {one["options"]["path"] for one in providers} == {inside["../grafana/dashboards"]}
