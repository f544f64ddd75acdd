"""The whole life of files and batches, with the real openai SDK against a gateway and a fake upstream."""

import asyncio
import json
from collections.abc import AsyncIterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import openai
import pytest
from doubles import replies
from doubles.gateway import InProcessGateway, StartGateway
from doubles.rawclient import RawClient, call
from doubles.script import Until
from doubles.settings import AUTH, KEY, OTHER_KEY, settings
from doubles.upstream import FaultUpstream
from kit.batch_scene import CHAT, batching, client_of, jsonl, line, results, submitted, until

SCHEMA = json.loads((Path(__file__).parent / "openai-files-batches.json").read_text(encoding="utf-8"))
FORM = ("content-type", "multipart/form-data; boundary=b")


@cache
def answers_of(path: str, method: str) -> jsonschema.Draft202012Validator:
    """OpenAI's schema of the answer."""
    schema = SCHEMA["paths"][path][method]["responses"]["200"]["content"]["application/json"]["schema"]
    return jsonschema.Draft202012Validator({**schema, "components": SCHEMA["components"]})


@pytest.fixture
async def gateway(upstream: FaultUpstream, start_gateway: StartGateway, tmp_path: Path) -> InProcessGateway:
    return await start_gateway(batching(upstream.url, tmp_path))


@pytest.fixture
async def sdk(gateway: InProcessGateway) -> AsyncIterator[openai.AsyncOpenAI]:
    async with client_of(gateway.url) as client:
        yield client


async def asked(gateway: InProcessGateway, method: str, path: str, body: Any = None) -> Any:
    answer = await call(gateway.port, method, f"/v1{path}", body, [AUTH])
    assert answer.status == 200, answer.body
    return answer.json()


def form(file: bytes, filename: str = "in.jsonl", **fields: str) -> bytes:
    """A multipart form."""
    parts = [
        f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields.items()
    ]
    head = f'--b\r\nContent-Disposition: form-data; name="file"; filename="{filename}"\r\n\r\n'.encode()
    return b"".join(parts) + head + file + b"\r\n--b--\r\n"


async def uploaded(gateway: InProcessGateway, body: bytes, key: str = KEY) -> Any:
    return await call(gateway.port, "POST", "/v1/files", body, [("authorization", f"Bearer {key}"), FORM])


async def test_the_whole_life_of_a_batch(sdk: openai.AsyncOpenAI, upstream: FaultUpstream) -> None:
    wrong = replies.error(400, "no such thing", kind="invalid_request_error", code="odd")
    upstream.always(lambda call: wrong if b'ping 7"' in call.body else replies.ordinary(call))
    batch = await submitted(sdk, *map(line, range(100)), metadata={"team": "a"})
    assert (batch.status, batch.metadata, batch.endpoint) == ("validating", {"team": "a"}, CHAT)
    batch = await until(sdk, batch.id, "completed")
    assert (batch.request_counts.total, batch.request_counts.completed, batch.request_counts.failed) == (100, 99, 1)
    assert (batch.usage.input_tokens, batch.usage.output_tokens, batch.model) == (495, 198, "m-small")
    assert batch.created_at <= batch.in_progress_at <= batch.finalizing_at <= batch.completed_at
    done = await results(sdk, batch.output_file_id)
    assert set(done) == {f"line-{number}" for number in range(100) if number != 7}
    response = done["line-0"]["response"]
    assert (response["status_code"], done["line-0"]["error"]) == (200, None)
    assert response["body"]["model"] == "m-small"
    assert response["body"]["choices"][0]["message"]["content"] == "pong"
    failed = await results(sdk, batch.error_file_id)
    assert [*failed] == ["line-7"]
    assert failed["line-7"]["response"]["status_code"] == 400
    assert failed["line-7"]["response"]["body"]["error"]["code"] == "odd"
    assert len(upstream.calls) == 100


async def test_a_line_ends_as_it_would_have_ended_live(gateway: InProcessGateway, sdk: openai.AsyncOpenAI) -> None:
    asked_live = {"model": "m-small", "messages": [{"role": "user", "content": "ping 1"}], "top_logprobs": -1}
    live = await call(gateway.port, "POST", CHAT, asked_live, [AUTH])
    batch = await until(sdk, (await submitted(sdk, line(1, top_logprobs=-1))).id, "completed")
    files = [one for one in (batch.output_file_id, batch.error_file_id) if one]
    result = (await results(sdk, files[0]))["line-1"]["response"]
    assert (result["status_code"], result["body"]) == (live.status, live.json())


async def test_every_answer_has_openais_shape(gateway: InProcessGateway, sdk: openai.AsyncOpenAI) -> None:
    answers_of("/files", "get").validate(await asked(gateway, "GET", "/files"))
    answers_of("/batches", "get").validate(await asked(gateway, "GET", "/batches"))
    made = await uploaded(gateway, form(jsonl(line(1), line(2, stream=True)), purpose="batch"))
    answers_of("/files", "post").validate(made.json())
    answers_of("/files/{file_id}", "get").validate(await asked(gateway, "GET", f"/files/{made.json()['id']}"))
    body = {"input_file_id": made.json()["id"], "endpoint": CHAT, "completion_window": "24h"}
    answers_of("/batches", "post").validate(await asked(gateway, "POST", "/batches", body))
    good, bad = (await submitted(sdk, line(1))).id, (await submitted(sdk, b"{")).id
    for id, status in ((good, "completed"), (bad, "failed")):
        await until(sdk, id, status)
        answers_of("/batches/{batch_id}", "get").validate(await asked(gateway, "GET", f"/batches/{id}"))
    listed = await asked(gateway, "GET", "/batches")
    answers_of("/batches", "get").validate(listed)
    assert [each["id"] for each in listed["data"]][:2] == [bad, good]
    files = await asked(gateway, "GET", "/files")
    answers_of("/files", "get").validate(files)
    for each in files["data"]:
        answers_of("/files/{file_id}", "delete").validate(await asked(gateway, "DELETE", f"/files/{each['id']}"))
    assert (await asked(gateway, "GET", "/files"))["data"] == []


async def test_cancelling_lets_lines_under_way_end(
    start_gateway: StartGateway, upstream: FaultUpstream, tmp_path: Path
) -> None:
    gateway = await start_gateway(batching(upstream.url, tmp_path, upstream={"max_concurrency": 2}))
    go_on = asyncio.Event()
    upstream.always(lambda call: [Until(go_on), *replies.ordinary(call)])
    async with client_of(gateway.url) as sdk:
        batch = await submitted(sdk, *map(line, range(50)))
        await upstream.holding(2)
        answer = await asked(gateway, "POST", f"/batches/{batch.id}/cancel")
        answers_of("/batches/{batch_id}/cancel", "post").validate(answer)
        assert answer["status"] == "cancelling"
        go_on.set()
        batch = await until(sdk, batch.id, "cancelled")
        assert (batch.request_counts.completed, batch.request_counts.failed) == (2, 48)
        assert set(await results(sdk, batch.output_file_id)) == {"line-0", "line-1"}
        undone = await results(sdk, batch.error_file_id)
        assert {each["error"]["code"] for each in undone.values()} == {"batch_cancelled"}
        assert len(upstream.calls) == 2
        with pytest.raises(openai.BadRequestError, match="cannot be cancelled"):
            await sdk.batches.cancel((await until(sdk, (await submitted(sdk, line(1))).id, "completed")).id)


async def test_what_belongs_to_another_key_does_not_exist(gateway: InProcessGateway, sdk: openai.AsyncOpenAI) -> None:
    batch = await until(sdk, (await submitted(sdk, line(1))).id, "completed")
    async with client_of(gateway.url, OTHER_KEY) as other:
        for call_it in (
            other.batches.retrieve(batch.id),
            other.batches.cancel(batch.id),
            other.files.retrieve(batch.output_file_id),
            other.files.content(batch.output_file_id),
            other.files.delete(batch.input_file_id),
            other.batches.create(input_file_id=batch.input_file_id, endpoint=CHAT, completion_window="24h"),
        ):
            with pytest.raises(openai.NotFoundError, match="No such"):
                await call_it
        assert (await other.files.list()).data == []
        assert (await other.batches.list()).data == []
    assert (await call(gateway.port, "GET", "/v1/files")).status == 401


async def test_lists_have_limit_after_order_and_purpose(sdk: openai.AsyncOpenAI) -> None:
    made = [(await sdk.files.create(file=(f"{number}", b"x"), purpose="user_data")).id for number in range(5)]
    batch = (await sdk.files.create(file=("b", b"x"), purpose="batch")).id
    first = await sdk.files.list(limit=2)
    assert ([each.id for each in first.data], first.has_more) == ([batch, made[4]], True)
    assert [each.id async for each in sdk.files.list(limit=2)] == [batch, *reversed(made)]
    assert [each.id async for each in sdk.files.list(limit=2, order="asc", purpose="user_data")] == made
    rest = await sdk.files.list(after=made[1], order="asc", purpose="user_data", limit=3)
    assert ([each.id for each in rest.data], rest.has_more) == (made[2:], False)
    batches = [(await submitted(sdk, line(1))).id for _ in range(3)]
    assert [each.id async for each in sdk.batches.list(limit=1)] == [*reversed(batches)]
    for query in ("limit=0", "limit=x", "limit=10001", "order=up"):
        with pytest.raises(openai.BadRequestError):
            await sdk.get(f"/files?{query}", cast_to=object)


@pytest.mark.parametrize(
    ("asks", "status", "part", "shown"),
    [
        (None, 200, slice(0, 10), None),
        ("bytes=2-5", 206, slice(2, 6), "bytes 2-5/10"),
        ("bytes=7-", 206, slice(7, 10), "bytes 7-9/10"),
        ("bytes=-3", 206, slice(7, 10), "bytes 7-9/10"),
        ("bytes=5-99", 206, slice(5, 10), "bytes 5-9/10"),
        ("bytes=5-2", 200, slice(0, 10), None),
        ("bytes=0-1,4-5", 200, slice(0, 10), None),
        ("lines=0-1", 200, slice(0, 10), None),
        ("bytes=10-", 416, None, "bytes */10"),
        ("bytes=-0", 416, None, "bytes */10"),
    ],
)
async def test_content_and_its_ranges(
    gateway: InProcessGateway, sdk: openai.AsyncOpenAI, asks: str | None, status: int, part: slice, shown: str
) -> None:
    file = await sdk.files.create(file=("däta\n.txt", b"0123456789"), purpose="user_data")
    headers = [AUTH, *([("range", asks)] if asks else [])]
    async with await RawClient.open(gateway.port) as client:
        for _ in range(2):  # the connection serves another request
            await client.request("GET", f"/v1/files/{file.id}/content", None, headers)
            answer = await client.response()
            assert (answer.status, answer.header("content-range")) == (status, shown)
            if part is not None:
                assert answer.body == b"0123456789"[part]


async def test_a_large_file_comes_back_whole_to_a_slow_reader(gateway: InProcessGateway) -> None:
    content = bytes(range(256)) * 32_000
    made = await uploaded(gateway, form(content, purpose="user_data"))
    async with await RawClient.open(gateway.port, receive_buffer=4096) as client:
        await client.request("GET", f"/v1/files/{made.json()['id']}/content", None, [AUTH])
        assert (await client.response()).body == content


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (form(b"x"), 400, "`purpose` must be one of"),
        (form(b"x", purpose="batch_output"), 400, "`purpose` must be one of"),
        (form(b"x" * 2000, purpose="batch"), 413, "larger than 1024 bytes"),
        (form(b"x", purpose="b" * 2000), 400, "too long"),
        (b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--b--\r\n', 400, "no `file`"),
        (b"no form at all", 400, "no valid multipart"),
        (form(b"x", purpose="batch")[:-12], 400, "no valid multipart"),
        (form(b"x", purpose="batch", **{"expires_after[anchor]": "now"}), 400, "anchor"),
        (form(b"x", purpose="batch", **{"expires_after[anchor]": "created_at"}), 400, "seconds"),
    ],
)
async def test_a_bad_upload_is_refused_and_nothing_of_it_is_kept(
    start_gateway: StartGateway, upstream: FaultUpstream, tmp_path: Path, body: bytes, status: int, says: str
) -> None:
    gateway = await start_gateway(batching(upstream.url, tmp_path, {"max_file": 1024}))
    answer = await uploaded(gateway, body)
    assert answer.status == status
    assert says in answer.error["message"]
    assert [*(tmp_path / "batches/files").iterdir()] == []


async def test_an_upload_says_when_it_expires(sdk: openai.AsyncOpenAI) -> None:
    after = {"anchor": "created_at", "seconds": 7200}
    file = await sdk.files.create(file=("x", b"x"), purpose="batch", expires_after=after)  # type: ignore[arg-type]
    assert file.expires_at == file.created_at + 7200


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"endpoint": "/v1/nothing"}, "`endpoint` must be one of"),
        ({"completion_window": "soon"}, "such as 24h"),
        ({"completion_window": "0s"}, "such as 24h"),
        ({"metadata": {str(number): "" for number in range(17)}}, "at most 16 pairs"),
        ({"metadata": {"a": "b" * 513}}, "at most 16 pairs"),
        ({"metadata": {"a": 1}}, "metadata"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 5}}, "from 3600"),
        ({"input_file_id": 7}, "input_file_id"),
    ],
)
async def test_a_bad_batch_is_refused(
    gateway: InProcessGateway, sdk: openai.AsyncOpenAI, changed: dict[str, Any], says: str
) -> None:
    file = await sdk.files.create(file=("in.jsonl", jsonl(line(1))), purpose="batch")
    body = {"input_file_id": file.id, "endpoint": CHAT, "completion_window": "24h", **changed}
    answer = await call(gateway.port, "POST", "/v1/batches", body, [AUTH])
    assert answer.status == 400
    assert says in answer.error["message"]
    assert (await sdk.batches.list()).data == []


async def test_a_file_of_another_purpose_is_no_input(sdk: openai.AsyncOpenAI) -> None:
    file = await sdk.files.create(file=("in.jsonl", jsonl(line(1))), purpose="user_data")
    with pytest.raises(openai.BadRequestError, match="upload it with `batch`"):
        await sdk.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h")


async def test_a_wrong_method_says_which_is_right(gateway: InProcessGateway) -> None:
    for method, path, allow in (
        ("PUT", "/v1/files", "GET, POST"),
        ("POST", "/v1/files/file-1", "GET, DELETE"),
        ("GET", "/v1/batches/batch_abc/cancel", "POST"),
    ):
        answer = await call(gateway.port, method, path, b"", [AUTH])
        assert (answer.status, answer.header("allow")) == (405, allow)
    for path in ("/v1/files/a/b", "/v1/batches/a/content"):
        assert (await call(gateway.port, "GET", path, None, [AUTH])).error["code"] == "unknown_url"
    for path in ("/files", "/v1//files/", "/v1/files?limit=1"):
        assert (await call(gateway.port, "GET", path, None, [AUTH])).status == 200


async def test_without_batches_the_paths_say_what_to_set(
    start_gateway: StartGateway, upstream: FaultUpstream, tmp_path: Path
) -> None:
    gateway = await start_gateway(batching(upstream.url, tmp_path, {"enabled": False}))
    for method, path in (("POST", "/v1/files"), ("GET", "/v1/batches/batch_abc")):
        answer = await call(gateway.port, method, path, None, [AUTH])
        assert answer.status == 404
        assert "batches.enabled" in answer.error["message"]
    assert not (tmp_path / "batches").exists()
    assert "sluice_batch_job_lines" not in (await call(gateway.admin_port, "GET", "/metrics")).body.decode()


async def test_metrics_show_the_lines_of_running_batches(
    start_gateway: StartGateway, upstream: FaultUpstream, tmp_path: Path
) -> None:
    gateway = await start_gateway(batching(upstream.url, tmp_path, upstream={"max_concurrency": 2}))
    go_on = asyncio.Event()
    upstream.always(lambda call: [Until(go_on), *replies.ordinary(call)])
    async with client_of(gateway.url) as sdk:
        batch = await submitted(sdk, *map(line, range(10)))
        await upstream.holding(2)
        await gateway.counted("sluice_batch_job_lines", 2, state="under_way")
        await gateway.counted("sluice_batch_job_lines", 8, state="waiting")
        go_on.set()
        await until(sdk, batch.id, "completed")
        await gateway.counted("sluice_batch_job_lines", 0, state="completed")
    await gateway.counted("sluice_requests_total", 10, outcome="ok", endpoint=CHAT)


async def test_the_page_and_the_admin_port_show_the_batches_of_all_keys(
    gateway: InProcessGateway, sdk: openai.AsyncOpenAI, start_gateway: StartGateway, upstream: FaultUpstream
) -> None:
    batch = await submitted(sdk, *map(line, range(5)), metadata={"secret": "of-the-key"})
    await until(sdk, batch.id, "completed")
    answer = await call(gateway.admin_port, "GET", "/admin/batches")
    [shown] = answer.json()
    assert (shown["id"], shown["key"], shown["status"]) == (batch.id, "team-a", "completed")
    assert shown["request_counts"] == {"total": 5, "completed": 5, "failed": 0}
    assert b"of-the-key" not in answer.body
    html = (await call(gateway.admin_port, "GET", "/batches")).body.decode()
    assert "completed" in html
    assert "5 / 5" in html
    without = await start_gateway(settings(upstream.url))
    assert (await call(without.admin_port, "GET", "/admin/batches")).status == 404
    assert b'href="/batches"' not in (await call(without.admin_port, "GET", "/")).body
