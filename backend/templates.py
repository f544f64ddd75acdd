"""The longer texts of `sluice up`: the gateway's config, the examples, and what to do without an engine."""

from backend.engine import CHAT, EMBED

SHORT = {CHAT: "small", EMBED: "embed"}
"""The names that examples and other configs use for these models; the gateway serves both names."""

WITHOUT_ENGINE = """\
The gateway runs without it, in front of any server with OpenAI's API. Install it with `pip install .`,
write a sluice.yaml like this and run `sluice serve`:

upstreams:
  openai: {base_url: "https://api.openai.com/v1", api_key: "${OPENAI_API_KEY}"}
models:
  gpt-5-mini: {candidates: [{upstream: openai}]}
"""


def address(host: str, port: int) -> str:
    """`http://host:port`, with the brackets that an IPv6 address needs."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def config(host: str, port: int, admin_port: int, chat_port: int, embed_port: int | None) -> str:
    """The gateway's config for the engines on these ports; `embed_port` None: without an embedding model."""
    engines = {"local": (CHAT, chat_port)} | ({"embed": (EMBED, embed_port)} if embed_port else {})
    upstreams = "".join(
        f"  {upstream}: {{base_url: {address('127.0.0.1', at)}/v1, kind: vllm}}\n"
        for upstream, (_, at) in engines.items()
    )
    models = "".join(
        f"  {name}: {{candidates: [{{upstream: {upstream}, model: {model}}}]}}\n"
        for upstream, (model, _) in engines.items()
        for name in (SHORT[model], model)
    )
    return (
        "# Written by `sluice up` at each start.\n"
        f'server: {{host: "{host}", port: {port}, drain: {{timeout: 5s}}}}\n'
        f"admin: {{host: 127.0.0.1, port: {admin_port}}}\n"
        f"upstreams:\n{upstreams}models:\n{models}"
    )


def curl_example(host: str, port: int) -> str:
    """A chat request as one shell command."""
    message = f'{{"role": "user", "content": "{_QUESTION}"}}'
    return (
        f"curl -s {address(host, port)}/v1/chat/completions -H 'content-type: application/json' \\\n"
        f"""  -d '{{"model": "{SHORT[CHAT]}", "temperature": 0, "messages": [{message}]}}'"""
    )


def sdk_example(host: str, port: int, embeddings: bool) -> str:
    """A streamed chat with the OpenAI SDK, and an embedding if there is a model for it."""
    lines = [
        "from openai import OpenAI",
        f'client = OpenAI(base_url="{address(host, port)}/v1", api_key="none")',
        "stream = client.chat.completions.create(",
        f'    model="{SHORT[CHAT]}", temperature=0, stream=True,',
        f'    messages=[{{"role": "user", "content": "{_QUESTION}"}}],',
        ")",
        "for chunk in stream:",
        '    print(chunk.choices[0].delta.content or "", end="", flush=True)',
        "print()",
    ]
    if embeddings:
        lines += [
            f'answer = client.embeddings.create(model="{SHORT[EMBED]}", input=["A sluice lets in water."])',
            'print(len(answer.data[0].embedding), "dimensions")',
        ]
    return "\n".join(lines)


def ready(
    host: str, port: int, admin_port: int, engine_ports: dict[str, int], logs: str, config: str, sluice: str
) -> str:
    """The message once the engine and the gateway answer. `config` is a path, `sluice` how to call the command."""
    engines = "".join(f"  engine   {address('127.0.0.1', at)}/v1 ({model})\n" for model, at in engine_ports.items())
    models = "; ".join(f"{SHORT[model]}, also called {model}" for model in engine_ports)
    return (
        "\nEngine and gateway are ready.\n"
        f"  gateway  {address(host, port)}/v1\n"
        f"  models   {models}\n"
        f"  admin    {address('127.0.0.1', admin_port)}/metrics\n"
        f"{engines}"
        f"  logs     {logs}\n"
        "\nThe model is a toy of 135 million parameters: it shows that requests pass, not what a model can do.\n"
        f"\nTry it in another terminal:\n\n{curl_example(host, port)}\n"
        "\nor with the OpenAI SDK (pip install openai):\n\n"
        f"{sdk_example(host, port, EMBED in engine_ports)}\n"
        f"\nwatch:  {sluice} top --config {config}\nconfig: {config}\n"
        f"\nSee every call, and try one: {address('127.0.0.1', admin_port)}\n"
        "\nCtrl-C stops both.\n"
    )


_QUESTION = "What is the capital of France?"
