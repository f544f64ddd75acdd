"""The longer texts of `sluice up`: the gateway's config, the examples, the way without the engine."""

from backend.engine import CHAT, EMBED

SHORT = {CHAT: "small", EMBED: "embed"}
"""The names that examples and other configs use for such models; both are served."""

WITHOUT_ENGINE = """\
The gateway runs without it, in front of any server that speaks OpenAI's API. Install it with `pip install .`,
write a sluice.yaml like this one and run `sluice serve`:

upstreams:
  openai: {base_url: "https://api.openai.com/v1", api_key: "${OPENAI_API_KEY}"}
models:
  small: {candidates: [{upstream: openai, model: gpt-5-mini}]}
"""


def address(host: str, port: int) -> str:
    """`http://host:port`, with the brackets that an IPv6 address needs."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def config(host: str, port: int, admin_port: int, chat_port: int, embed_port: int | None) -> str:
    """The gateway's config for the engines on these ports; `embed_port` None: no embedding model."""
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
    """A chat call for the shell, in one command."""
    message = f'{{"role": "user", "content": "{_QUESTION}"}}'
    return (
        f"curl -s {address(host, port)}/v1/chat/completions -H 'content-type: application/json' \\\n"
        f"""  -d '{{"model": "{SHORT[CHAT]}", "temperature": 0, "messages": [{message}]}}'"""
    )


def sdk_example(host: str, port: int, embeddings: bool) -> str:
    """A streamed chat, and an embedding if there is a model for it, with the OpenAI SDK."""
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


def ready(host: str, port: int, admin_port: int, engine_ports: dict[str, int], logs: str) -> str:
    """What to say once everything answers."""
    engines = "".join(
        f"  engine   {address('127.0.0.1', at)}/v1 ({model})\n" for model, at in engine_ports.items()
    )
    models = "; ".join(f"{SHORT[model]}, also called {model}" for model in engine_ports)
    return (
        "\nEngine and gateway are ready.\n"
        f"  gateway  {address(host, port)}/v1\n"
        f"  models   {models}\n"
        f"  admin    {address('127.0.0.1', admin_port)}/metrics\n"
        f"{engines}"
        f"  logs     {logs}\n"
        f"\nTry it in another terminal:\n\n{curl_example(host, port)}\n"
        "\nor with the OpenAI SDK (pip install openai):\n\n"
        f"{sdk_example(host, port, EMBED in engine_ports)}\n"
        "\nCtrl-C stops both.\n"
    )


_QUESTION = "What is the capital of France?"
