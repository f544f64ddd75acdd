"""Errors that say that an upstream does not know the model, in the words of many providers."""

import pytest

from gateway.wire.openai.unknown_model import is_unknown_model

UNKNOWN = [
    (404, "The model `gpt-x` does not exist or you do not have access to it.", "model_not_found"),
    (404, "The model `gpt-x` does not exist.", "NotFoundError"),
    (404, "whatever it says", "model_not_found"),
    (404, "The API deployment for this resource does not exist.", "DeploymentNotFound"),
    (404, 'model "gpt-x" not found, try pulling it first', "api_error"),
    (404, "models/gpt-x is not found for API version v1beta, or is not supported for generateContent.", None),
    (400, "Invalid model: gpt-x", None),
    (400, "gpt-x is not a valid model ID", None),
    (400, "Model Not Exist", "invalid_request_error"),
    (400, "The model `gpt-x` has been decommissioned and is no longer supported.", "model_decommissioned"),
    (400, "Invalid model name passed in model=gpt-x. Call `/v1/models` to view available models.", None),
    (404, "model: gpt-x", "not_found_error"),
    (400, "could not find real model for gpt-x", None),
    (422, "Unknown model gpt-x", None),
    (404, "Unable to access non-serverless model gpt-x: model not available", "model_not_available"),
    (404, "模型 gpt-x 不存在", None),
]
OTHERS = [
    (404, "No file found with id 'file-1'.", None),
    (404, "Previous response with id 'resp_1' not found.", "previous_response_not_found"),
    (400, "The model `gpt-x` does not support image inputs.", None),
    (400, "Unknown parameter: 'gpt-x'. The model is invalid.", None),
    (400, "Invalid tool: the model gpt-x could not be found in tools[0]", None),
    (400, "Unsupported value: 'temperature' does not support 0.7 with this model.", "unsupported_value"),
    (404, "The model `dall-e-9` does not exist.", None),  # another one, that the client named in a tool
    (400, "This model's maximum context length is 8192 tokens.", "context_length_exceeded"),
    (500, "The model `gpt-x` does not exist.", None),
    (404, "Not Found", None),
    (400, "Invalid value: the model gpt-x wants max_tokens below 10", None),
]


@pytest.mark.parametrize(("status", "message", "code"), UNKNOWN)
def test_the_upstream_does_not_know_the_model(status: int, message: str, code: str | None) -> None:
    assert is_unknown_model(status, message, "gpt-x", code)


@pytest.mark.parametrize(("status", "message", "code"), OTHERS)
def test_other_errors_are_about_the_request(status: int, message: str, code: str | None) -> None:
    assert not is_unknown_model(status, message, "gpt-x", code)


def test_a_name_with_an_owner_is_recognised_without_it() -> None:
    assert is_unknown_model(404, "model 'llama-9' not found", "meta/llama-9")


def test_long_messages_are_read_in_part() -> None:
    assert not is_unknown_model(400, "x" * 5000 + " the model gpt-x does not exist", "gpt-x")
